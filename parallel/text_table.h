#pragma once
/// Tables of numbers for people.

#include <cstdint>
#include <string>
#include <vector>

namespace parallel {

std::string with_commas(int64_t n);  ///< 1234567 -> "1,234,567"

/// Rows of equally many cells, one line each, columns two blanks apart. The first `num_words` columns hold words and
/// start at the left, the others numbers that end at the right.
std::string format_table(const std::vector<std::vector<std::string>>& rows, size_t num_words);

}  // namespace parallel
