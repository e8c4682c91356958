#pragma once
/// "Did you mean": the known word that a mistyped one was probably meant to be.

#include <string>
#include <vector>

namespace trainer {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(const std::string& a, const std::string& b);

/// The closest of `known`, else the only one that begins with `word`, else "".
std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// "a, b or c"
std::string join_or(const std::vector<std::string>& words);

}  // namespace trainer
