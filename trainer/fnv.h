#pragma once
/// A fingerprint of text, the same on every machine: FNV-1a. It finds accidents, not attacks.

#include <cstdint>
#include <string_view>

namespace trainer {

constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace trainer
