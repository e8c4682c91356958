#include "trainer/toml_tree.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <toml.hpp>

#include "tensor/error.h"
#include "trainer/printable.h"
#include "trainer/toml_precheck.h"

namespace trainer {
namespace {

// What differs between toml11 3.x and 4.x.
int64_t line_of(const auto& location) {
  if constexpr (requires { location.first_line_number(); }) {
    return static_cast<int64_t>(location.first_line_number());
  } else {
    return static_cast<int64_t>(location.line());
  }
}

/// The library's own message: "[error] toml::function: title", then numbered source lines, each with a remark below.
struct SyntaxMessage {
  std::string title = "this is not TOML";
  std::string remark;
  int64_t line = 1;
};

/// "  12 | text" -> 12; nullopt for other lines.
std::optional<int64_t> line_number(const std::string& line) {
  const size_t digits = line.find_first_not_of(' ');
  if (digits == std::string::npos) return std::nullopt;
  const size_t end = line.find_first_not_of("0123456789", digits);
  if (end == digits || end == std::string::npos || end - digits > 9 || line.compare(end, 2, " |") != 0)
    return std::nullopt;
  return std::stoll(line.substr(digits, end - digits));
}

/// "   |   ^--- remark" -> "remark"; "" for other lines.
std::string remark_of(const std::string& line) {
  const size_t bar = line.find_first_not_of(' ');
  if (bar == std::string::npos || line[bar] != '|') return "";
  const size_t mark = line.find_first_not_of(' ', bar + 1);
  if (mark == std::string::npos || (line[mark] != '^' && line[mark] != '~')) return "";
  const size_t text = line.find_first_not_of("^~- ", mark);
  return text == std::string::npos ? "" : line.substr(text);
}

std::string without_prefixes(std::string title) {
  for (const std::string prefix : {"[error]", " ", "toml::"})
    if (title.rfind(prefix, 0) == 0) title.erase(0, prefix.size());
  const size_t colon = title.find(": ");
  const bool is_function = colon != std::string::npos && title.find_first_of(" \"'`") > colon;
  return is_function ? title.substr(colon + 2) : title;
}

SyntaxMessage take_apart(const std::string& what) {
  SyntaxMessage message;
  std::istringstream lines(what);
  bool is_first = true;
  for (std::string line; std::getline(lines, line); is_first = false) {
    if (!is_first && line.rfind("[error]", 0) == 0) break;  // 4.x lists several
    if (is_first) {
      message.title = without_prefixes(line);
    } else if (const auto number = line_number(line)) {
      message.line = *number;
    } else if (const std::string remark = remark_of(line); !remark.empty()) {
      message.remark = remark;
    }
  }
  return message;
}

std::string line_text(const std::string& text, int64_t line) {
  std::istringstream lines(text);
  std::string found;
  for (int64_t i = 0; i < line && std::getline(lines, found);) ++i;
  return printable(found);
}

std::string without_end(std::string sentence) {
  while (!sentence.empty() && std::string(". :").find(sentence.back()) != std::string::npos) sentence.pop_back();
  return sentence;
}

[[noreturn]] void refuse_syntax(const std::string& text, const std::string& origin, const std::string& what) {
  const SyntaxMessage message = take_apart(what);
  const std::string all = message.title + message.remark;
  const bool is_twice = all.find("already") != std::string::npos || all.find("duplicate") != std::string::npos;
  std::string reason = without_end(message.title);
  const std::string remark = without_end(message.remark);
  const bool says_more = !remark.empty() && remark != "here";
  if (says_more) reason += (reason.empty() ? "" : ": ") + remark;
  if (reason == "the next token is not a boolean")  // toml11 3.x tries that last
    reason = "the value is neither a number, nor true or false, nor text in quotes";
  throw tensor::ConfigError(fmt::format("{}:{}: not valid TOML: {}.\n    {}\n  Fix: {}", origin, message.line,
                                        printable(reason), line_text(text, message.line),
                                        is_twice ? "keep one of the two; every key and table is given once."
                                                 : "write key = value, with text in \"quotes\", under a [table]."));
}

/// toml11 3.x reads an integer that does not fit as the nearest that does, but lets binary ones wrap around.
void refuse_wrapping(const std::string& text, const std::string& origin) {
  constexpr size_t kMostDigits = 62;
  std::istringstream lines(text);
  int64_t number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    for (size_t at = line.find("0b"); at != std::string::npos; at = line.find("0b", at + 2)) {
      const size_t end = std::min(line.find_first_not_of("01_", at + 2), line.size());
      if (end - at - 2 <= kMostDigits) continue;
      throw tensor::ConfigError(
          fmt::format("{}:{}: a binary number of more than {} digits does not fit 64 bits.\n"
                      "  Fix: write a smaller number.",
                      origin, number, kMostDigits));
    }
  }
}

void convert_scalar(const toml::value& from, TomlValue& to) {
  if (from.is_boolean()) {
    to.kind = TomlValue::Kind::boolean;
    to.boolean = from.as_boolean();
  } else if (from.is_integer()) {
    to.kind = TomlValue::Kind::integer;
    to.integer = from.as_integer();
  } else if (from.is_floating()) {
    to.kind = TomlValue::Kind::floating;
    to.floating = from.as_floating();
  } else if (from.is_string()) {
    to.kind = TomlValue::Kind::string;
    to.string = toml::get<std::string>(from);
  } else {
    to.kind = TomlValue::Kind::date_or_time;
  }
}

TomlValue convert(const toml::value& from, const std::string& origin) {
  TomlValue to;
  to.place = fmt::format("{}:{}", origin, line_of(from.location()));
  if (from.is_table()) {
    to.kind = TomlValue::Kind::table;
    for (const auto& [key, value] : from.as_table()) to.table.emplace(key, convert(value, origin));
  } else if (from.is_array()) {
    to.kind = TomlValue::Kind::array;
    for (const auto& value : from.as_array()) to.array.push_back(convert(value, origin));
  } else {
    convert_scalar(from, to);
  }
  return to;
}

}  // namespace

std::string describe(TomlValue::Kind kind) {
  switch (kind) {
    case TomlValue::Kind::boolean:
      return "true or false";
    case TomlValue::Kind::integer:
      return "an integer";
    case TomlValue::Kind::floating:
      return "a number with a fraction";
    case TomlValue::Kind::string:
      return "a string";
    case TomlValue::Kind::array:
      return "an array";
    case TomlValue::Kind::table:
      return "a table";
    case TomlValue::Kind::date_or_time:
      return "a date or time";
  }
  return "";
}

std::string to_text(const TomlValue& value) {
  switch (value.kind) {
    case TomlValue::Kind::boolean:
      return value.boolean ? "true" : "false";
    case TomlValue::Kind::integer:
      return std::to_string(value.integer);
    case TomlValue::Kind::floating:
      return fmt::format("{}", value.floating);
    case TomlValue::Kind::string:
      return fmt::format("\"{}\"", printable(value.string));
    case TomlValue::Kind::array:
      return "[...]";
    case TomlValue::Kind::table:
      return "{...}";
    case TomlValue::Kind::date_or_time:
      return "(a date or time)";
  }
  return "";
}

TomlValue parse_toml(const std::string& text, const std::string& origin) {
  precheck_toml(text, origin);
  refuse_wrapping(text, origin);
  try {
    std::istringstream stream(text);
    return convert(toml::parse(stream, origin), origin);
  } catch (const tensor::Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse_syntax(text, origin, error.what());
  }
}

}  // namespace trainer
