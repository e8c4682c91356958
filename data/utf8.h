#pragma once
/// UTF-8 as Unicode 15 table 3-7 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace data {

/// Bytes of the character that `text` begins with; 0 when it does not begin with one.
size_t utf8_length(std::string_view text);

/// The code point of a valid character, as utf8_length() measured it.
char32_t utf8_decode(std::string_view character);

void append_utf8(char32_t code_point, std::string& out);

/// Number of bytes at the start of `text` that are whole, valid characters.
size_t valid_utf8_prefix(std::string_view text);

/// `text` with U+FFFD for each broken part (the longest that could have begun a character, as Python decodes with
/// errors="replace").
std::string repair_utf8(std::string_view text);

/// Unicode's White_Space property: what \s means in the regular expressions of tokenizers.
bool is_white_space(char32_t code_point);

}  // namespace data
