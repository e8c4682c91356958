#include "data/utf8.h"

#include <algorithm>
#include <cstring>

namespace data {
namespace {

struct Scan {
  size_t good;    ///< leading bytes that could begin a character
  size_t wanted;  ///< bytes of that character; good == wanted: it is whole
};

Scan scan(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return {1, 1};
  if (lead < 0xC2 || lead > 0xF4) return {0, 1};
  const size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;  // below: overlong
  const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;   // above: surrogate, or past U+10FFFF
  if (second < least || second > most) return {1, wanted};
  size_t good = 2;
  while (good < wanted && (byte(good) & 0xC0) == 0x80) ++good;
  return {good, wanted};
}

/// Bytes at the start that are ASCII, eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (uint64_t word; i + 8 <= text.size(); i += 8) {
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  return i;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Scan s = scan(text);
  return s.good == s.wanted ? s.wanted : 0;
}

char32_t utf8_decode(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(character[i])); };
  switch (utf8_length(character)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    case 4:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    default:
      return 0xFFFD;
  }
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    i += ascii_prefix(text.substr(i));
    if (i == text.size()) break;
    const size_t length = utf8_length(text.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

std::string repair_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size() + 16);
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    repaired.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    repaired.append("\xEF\xBF\xBD");
    text.remove_prefix(std::clamp<size_t>(scan(text).good, 1, text.size()));
  }
  return repaired;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace data
