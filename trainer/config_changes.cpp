#include "trainer/config_changes.h"

#include <fmt/core.h>

#include <map>
#include <sstream>
#include <string_view>

#include "trainer/printable.h"

namespace trainer {

namespace {

struct Entry {
  std::string path, value;
};

bool changes_no_number(std::string_view path) {
  for (const std::string_view start : {"run.name", "run.dir", "checkpoint.", "log.", "cluster.", "data.tokenizer"}) {
    if (path.starts_with(start)) return true;
  }
  return false;
}

/// Lines as to_toml() writes them: "[table]", "key = value  # meaning". Other lines say nothing.
std::vector<Entry> entries_of(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream lines(text);
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) table = line.substr(1, line.find(']') - 1) + ".";
    const size_t equals = line.find(" = ");
    if (line.starts_with('[') || equals == std::string::npos) continue;
    const std::string path = table + line.substr(0, equals);
    if (changes_no_number(path)) continue;
    const size_t end = line.rfind("  # ");
    entries.push_back({path, line.substr(equals + 3, end == std::string::npos ? end : end - equals - 3)});
  }
  return entries;
}

}  // namespace

std::vector<std::string> config_changes(const std::string& before, const std::string& now) {
  std::map<std::string, std::string> old;
  for (Entry& entry : entries_of(before)) old[entry.path] = std::move(entry.value);
  std::vector<std::string> changes;
  for (const Entry& entry : entries_of(now)) {
    const auto found = old.find(entry.path);
    if (found != old.end() && found->second == entry.value) continue;
    const std::string was = found == old.end() ? "was not there" : "was " + printable(found->second);
    changes.push_back(fmt::format("{} = {} ({})", entry.path, entry.value, was));
  }
  return changes;
}

}  // namespace trainer
