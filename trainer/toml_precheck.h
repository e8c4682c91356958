#pragma once
/// Is this text safe to hand to a TOML parser? Parsers recurse per bracket, and toml11 3.7 takes time that grows with
/// values * bytes and values * line length: all are capped first so that any file takes well under a second, and bytes
/// that are no text are refused.

#include <cstdint>
#include <string>

namespace trainer {

constexpr size_t kMaxConfigBytes = 256 << 10;
constexpr size_t kMaxConfigLine = 8 << 10;  // bytes
constexpr int kMaxConfigNesting = 16;
constexpr int kMaxConfigValues = 2'000;

/// Throws ConfigError naming `origin` and the line.
void precheck_toml(const std::string& text, const std::string& origin);

}  // namespace trainer
