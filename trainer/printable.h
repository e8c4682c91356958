#pragma once
/// Text from files and users, made safe to print.

#include <fmt/core.h>

#include <string>

namespace trainer {

/// Control bytes escaped (no terminal codes, no fake log lines), cut to 200 characters.
inline std::string printable(const std::string& text) {
  constexpr size_t kLongest = 200;
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues_character = (byte & 0xC0) == 0x80;
    if (out.size() >= kLongest && !continues_character) return out + "...";
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

/// Lines stay lines; every other control byte becomes \xNN.
inline std::string printable_lines(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c != '\n' && (byte < 0x20 || byte == 0x7F)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace trainer
