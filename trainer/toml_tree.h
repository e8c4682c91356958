#pragma once
/// TOML text as a plain tree. toml_tree.cpp alone knows the TOML library; it builds with toml11 3.7 and 4.x.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainer {

struct TomlValue {
  enum class Kind { boolean, integer, floating, string, array, table, date_or_time };

  Kind kind = Kind::table;
  bool boolean = false;
  int64_t integer = 0;
  double floating = 0;
  std::string string;
  std::vector<TomlValue> array;
  std::map<std::string, TomlValue> table;

  std::string place;     ///< "configs/a.toml:12", or the --set it came from
  std::string raw_text;  ///< of a --set only: its value as typed
};

/// "an integer", "a table", ...
std::string describe(TomlValue::Kind kind);
/// The value as a user would write it, shortened.
std::string to_text(const TomlValue& value);

/// Throws ConfigError: `origin`:line, what is wrong there, the line itself.
TomlValue parse_toml(const std::string& text, const std::string& origin);

}  // namespace trainer
