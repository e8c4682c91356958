#include "checkpoint/state.h"

#include <algorithm>

#include "checkpoint/format.h"

namespace checkpoint {

namespace {

bool has_control_bytes(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() > format::kMaxNameBytes || name == format::kConfigText || has_control_bytes(name)) {
    return false;
  }
  int depth = 0;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || ++depth > format::kMaxDepth) return false;
    begin = end + 1;
  }
  return true;
}

bool stays_inside(std::string_view path) {
  return !path.empty() && path.front() != '/' && path.find("..") == std::string_view::npos && !has_control_bytes(path);
}

}  // namespace checkpoint
