#include "trainer/config_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>

#include "trainer/nearest.h"
#include "trainer/printable.h"
#include "trainer/toml_precheck.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

/// " The nearest file is x.toml." or "".
std::string similar_file(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end && names.size() < 1000;
       entry.increment(ignored)) {
    names.push_back(entry->path().filename().string());
  }
  const std::string found = nearest(path.filename().string(), names);
  return found.empty() ? "" : fmt::format("\n  A similar name there is {}.", printable(found));
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// The value as TOML; what is no TOML but looks like a word, name or path is a string.
std::optional<TomlValue> parse_override_value(const std::string& text) {
  static const std::regex bare_word(R"([A-Za-z0-9_./~+:@-]*)");
  try {
    const TomlValue tree = parse_toml("value = " + text + "\n", "--set");
    if (tree.table.size() != 1) return std::nullopt;  // a newline smuggled in further keys
    return tree.table.begin()->second;
  } catch (const tensor::ConfigError&) {
    constexpr size_t kLongest = 4096;
    if (text.size() > kLongest || !std::regex_match(text, bare_word)) return std::nullopt;
    TomlValue word;
    word.kind = TomlValue::Kind::string;
    word.string = text;
    return word;
  }
}

void set_place(TomlValue& value, const std::string& place) {
  value.place = place;
  for (auto& element : value.array) set_place(element, place);
  for (auto& [key, element] : value.table) set_place(element, place);
}

}  // namespace

std::string read_config_file(const std::string& path) {
  std::error_code status_error;
  const fs::file_status status = fs::status(path, status_error);
  if (!fs::exists(status)) {
    throw tensor::ConfigError(
        fmt::format("{}: there is no such config file.{}\n  Fix: give the path of a .toml file; "
                    "configs/ holds examples.",
                    printable(path), similar_file(path)));
  }
  if (!fs::is_regular_file(status)) {
    throw tensor::ConfigError(fmt::format("{}: is {}, not a config file.\n  Fix: give the path of a .toml file.",
                                          printable(path), fs::is_directory(status) ? "a directory" : "a device"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');  // one byte more than precheck_toml() lets pass
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    throw tensor::ConfigError(fmt::format("{}: cannot be read: {}.\n  Fix: check its permissions.", printable(path),
                                          std::strerror(errno ? errno : EIO)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

void apply_override(TomlValue& root, const std::string& override_text, Findings& findings) {
  const std::string place = fmt::format("--set {}", printable(override_text));
  const size_t equals = override_text.find('=');
  const std::vector<std::string> keys = split(override_text.substr(0, equals));
  const bool has_empty_key = std::find(keys.begin(), keys.end(), "") != keys.end();
  if (equals == std::string::npos || keys.size() < 2 || keys.size() > 4 || has_empty_key) {
    findings.add({place, "is not of the form table.key=value.", "", "write for example --set train.steps=100."});
    return;
  }
  const std::string text = override_text.substr(equals + 1);
  std::optional<TomlValue> value = parse_override_value(text);
  if (!value) {
    findings.add({place, fmt::format("the value {} is not TOML.", printable(text)), "",
                  "quote text for TOML and for the shell: --set 'run.name=\"my run\"'."});
    return;
  }
  value->raw_text = text;
  set_place(*value, place);
  TomlValue* table = &root;
  for (size_t i = 0; i + 1 < keys.size(); ++i) {
    auto [entry, is_new] = table->table.try_emplace(keys[i]);
    if (is_new) entry->second.place = place;
    if (entry->second.kind != TomlValue::Kind::table) return;  // reading the table will report it
    table = &entry->second;
  }
  table->table[keys.back()] = *value;
}

}  // namespace trainer
