#pragma once
/// Is this text safe to hand to a TOML parser? Parsers recurse per bracket and some take quadratic time in long arrays,
/// so size, nesting and number of values are capped first, and bytes that are no text are refused.

#include <cstdint>
#include <string>

namespace trainer {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxConfigNesting = 16;
constexpr int kMaxConfigValues = 10'000;

/// Throws ConfigError naming `origin` and the line.
void precheck_toml(const std::string& text, const std::string& origin);

}  // namespace trainer
