#pragma once
/// A question to ask of JSON from others before it becomes values, which are copied, hashed and printed by recursion.
/// In the lowest folder, for all who read JSON.

#include <algorithm>
#include <string_view>

namespace tensor {

/// How many lists and objects lie inside each other; of text that is not JSON, some number.
inline int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_in_string = !is_in_string;
    if (is_in_string && text[i] == '\\') ++i;
    if (is_in_string) continue;
    if (text[i] == '[' || text[i] == '{') deepest = std::max(deepest, ++depth);
    if (text[i] == ']' || text[i] == '}') --depth;
  }
  return deepest;
}

}  // namespace tensor
