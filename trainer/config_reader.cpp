#include "trainer/config_reader.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "trainer/config_checks.h"
#include "trainer/config_file.h"
#include "trainer/config_keys.h"
#include "trainer/key_suggestions.h"
#include "trainer/nearest.h"
#include "trainer/presets.h"
#include "trainer/printable.h"

namespace trainer {
namespace {

using Kind = TomlValue::Kind;

std::string range_text(const IntegerRange& range) {
  const std::string word = range.word_for_zero ? fmt::format("\"{}\" or ", range.word_for_zero) : "";
  if (range.max == IntegerRange{.min = 0}.max) return fmt::format("{}an integer of at least {}", word, range.min);
  return fmt::format("{}an integer from {} to {}", word, range.min, range.max);
}

std::string range_text(const RealRange& range) {
  const std::string min = fmt::format("{} {}", range.excludes_min ? "greater than" : "at least", range.min);
  return fmt::format("a number {} and {} {}", min, range.excludes_max ? "less than" : "at most", range.max);
}

/// Fills the fields that the tree gives and reports what does not fit.
class ConfigReader : public KeyVisitor {
 public:
  ConfigReader(const TomlValue& root, ConfigPlaces& places, Findings& findings)
      : places_(places), findings_(findings), tables_{{"", &root, {}}} {}

  void begin_table(const char* name) override {
    const TomlValue* found = find(name);
    const std::string path = path_of(name);
    if (found && found->kind != Kind::table) {
      report(path, *found,
             fmt::format("{} = {} is {}; it must be a table.", path, to_text(*found), describe(found->kind)), "",
             fmt::format("write [{}] on a line of its own, and its keys below.", path));
      found = nullptr;
    }
    tables_.push_back({path, found, {}});
  }

  void end_table() override {
    report_unknown();
    tables_.pop_back();
  }

  /// After the walk: what is missing, unless a mistyped key was meant to be it.
  void finish() {
    report_unknown();
    for (const auto& [path, finding] : missing_) {
      if (!places_.is_unusable(path)) findings_.add(finding);
      places_.mark_unusable(path);
    }
  }

  void boolean(const Key& key, bool& field) override {
    const TomlValue* value = find(key.name);
    if (!value) return;
    if (value->kind != Kind::boolean)
      return report_type(key, *value, "true or false", fmt::format("{} = true or {} = false", key.name, key.name));
    field = value->boolean;
  }

  void integer(const Key& key, int64_t& field, const IntegerRange& range) override {
    const TomlValue* value = find(key.name);
    if (!value) return require(key, contains(range, field), "an integer");
    const bool is_word = value->kind == Kind::string && range.word_for_zero && value->string == range.word_for_zero;
    if (is_word) {
      field = 0;
      return;
    }
    read_integer(key, *value, field, range);
  }

  void integers(const Key& key, std::vector<int64_t>& field, const IntegerRange& range) override {
    const TomlValue* value = find(key.name);
    if (!value) return;
    if (value->kind != Kind::array) {
      return report_type(key, *value, "an array of integers", fmt::format("{} = [2, 2]", key.name));
    }
    field.clear();
    for (const TomlValue& element : value->array) {
      field.emplace_back();
      read_integer(key, element, field.back(), range);
    }
  }

  void real(const Key& key, double& field, const RealRange& range) override {
    const TomlValue* value = find(key.name);
    if (!value) return require(key, contains(range, field), "a number");
    if (value->kind != Kind::integer && value->kind != Kind::floating)
      return report_type(key, *value, range_text(range), fmt::format("{} = {}, without quotes", key.name, field));
    const double number = value->kind == Kind::integer ? static_cast<double>(value->integer) : value->floating;
    if (!std::isfinite(number) || !contains(range, number)) return report_range(key, *value, false, range_text(range));
    field = number;
  }

  void text(const Key& key, std::string& field) override {
    const TomlValue* value = find(key.name);
    if (!value) return;
    read_text(key, *value, path_of(key.name), field);
  }

  void name_of(const Key& key, size_t& index, const std::vector<std::string>& names) override {
    const TomlValue* value = find(key.name);
    if (!value) return;
    if (value->kind != Kind::string)
      return report_type(key, *value, "a string", fmt::format("{} = \"{}\"", key.name, names[0]));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != value->string) continue;
      index = i;
      return;
    }
    report_word(key, *value, names);
  }

  void sources(const Key& key, std::vector<data::DataSource>& field) override {
    const TomlValue* value = find(key.name);
    const std::string path = path_of(key.name);
    if (!value) return require(key, !field.empty(), "a path, or an array of paths");
    if (value->kind == Kind::array && value->array.empty()) {
      report(path, *value, fmt::format("{} is empty.", path), meaning(key), "name at least one token file.");
      return;
    }
    field.clear();
    const std::vector<TomlValue> one = {*value};
    for (const TomlValue& element : value->kind == Kind::array ? value->array : one)
      field.push_back(read_source(key, element));
  }

  void paths(const Key& key, std::vector<std::string>& field) override {
    const TomlValue* value = find(key.name);
    if (!value) return;
    field.clear();
    const std::vector<TomlValue> one = {*value};
    for (const TomlValue& element : value->kind == Kind::array ? value->array : one) {
      field.emplace_back();
      read_text(key, element, path_of(key.name), field.back());
    }
  }

  void preset(const Key& key, model::ModelConfig& table) override {
    const TomlValue* value = find(key.name);
    if (!value) return;
    if (value->kind != Kind::string) return report_type(key, *value, "a string", "preset = \"gpt2-124m\"");
    const auto found = find_preset(value->string);
    if (!found) return report_word(key, *value, preset_names());
    table = *found;
  }

 private:
  struct Table {
    std::string path;
    const TomlValue* values;         ///< null where the config does not have this table
    std::vector<std::string> known;  ///< keys asked for
  };

  std::string path_of(const std::string& key) const {
    return tables_.back().path.empty() ? key : tables_.back().path + "." + key;
  }

  const TomlValue* find(const std::string& key) {
    Table& table = tables_.back();
    table.known.push_back(key);
    if (!table.values) return nullptr;
    const auto found = table.values->table.find(key);
    if (found == table.values->table.end()) return nullptr;
    places_.set(path_of(key), found->second.place);
    return &found->second;
  }

  static std::string meaning(const Key& key) { return fmt::format("It is {}.", key.meaning); }

  void report(const std::string& path, const TomlValue& value, const std::string& what, const std::string& why,
              const std::string& fix) {
    places_.mark_unusable(path);
    findings_.add({value.place, what, why, fix});
  }

  void report_type(const Key& key, const TomlValue& value, const std::string& expected, const std::string& example) {
    const std::string path = path_of(key.name);
    report(path, value,
           fmt::format("{} = {} is {}; it must be {}.", path, to_text(value), describe(value.kind), expected),
           meaning(key), fmt::format("write {}.", example));
  }

  void report_range(const Key& key, const TomlValue& value, bool overflows, const std::string& range) {
    const std::string path = path_of(key.name);
    const std::string what = overflows ? fmt::format("{} does not fit 64 bits; it must be {}.", path, range)
                                       : fmt::format("{} = {} must be {}.", path, to_text(value), range);
    report(path, value, what, meaning(key), "choose a value in that range.");
  }

  void report_word(const Key& key, const TomlValue& value, const std::vector<std::string>& words) {
    const std::string path = path_of(key.name);
    const std::string close = nearest(value.string, words);
    report(path, value, fmt::format("{} = {} must be {}.", path, to_text(value), join_or(words)), meaning(key),
           close.empty() ? "choose one of these." : fmt::format("did you mean \"{}\"?", close));
  }

  void require(const Key& key, bool has_usable_default, const std::string& expected) {
    if (has_usable_default) return;
    const std::string path = path_of(key.name);
    if (places_.is_unusable(tables_.back().path)) return;
    missing_.push_back({path,
                        {places_.of(path), fmt::format("{} is missing.", path),
                         fmt::format("It is {} and has no default.", key.meaning),
                         fmt::format("add {} ({}) to [{}].", key.name, expected, tables_.back().path)}});
  }

  /// What an integer key should read like: the same number where the user wrote 1e5 or "12".
  std::string integer_example(const Key& key, const TomlValue& value) const {
    const bool is_whole =
        value.kind == Kind::floating && std::abs(value.floating) < 1e15 && value.floating == std::floor(value.floating);
    if (is_whole) return fmt::format("{} = {}", key.name, static_cast<int64_t>(value.floating));
    return fmt::format("{} = a whole number, without quotes or fraction", key.name);
  }

  void read_integer(const Key& key, const TomlValue& value, int64_t& field, const IntegerRange& range) {
    if (value.kind != Kind::integer) return report_type(key, value, range_text(range), integer_example(key, value));
    using Limits = std::numeric_limits<int64_t>;
    const bool overflows = value.integer == Limits::max() || value.integer == Limits::min();
    const bool fits = value.integer >= range.min && value.integer <= range.max;
    if (overflows || !fits) return report_range(key, value, overflows, range_text(range));
    field = value.integer;
  }

  void read_text(const Key& key, const TomlValue& value, const std::string& path, std::string& field) {
    constexpr size_t kLongest = 4096;
    const bool is_scalar = value.kind != Kind::array && value.kind != Kind::table;
    const bool is_typed_bare = is_scalar && value.kind != Kind::string && !value.raw_text.empty();  // --set run.name=7
    if (value.kind != Kind::string && !is_typed_bare)
      return report_type(key, value, "a string", fmt::format("{} = \"...\", in quotes", key.name));
    const std::string& given = is_typed_bare ? value.raw_text : value.string;
    if (given.size() > kLongest || given.find('\0') != std::string::npos)
      return report(path, value, fmt::format("{} is longer than {} bytes or holds a zero byte.", path, kLongest),
                    meaning(key), "shorten it.");
    field = given;
  }

  data::DataSource read_source(const Key& key, const TomlValue& value) {
    data::DataSource source;
    if (value.kind != Kind::table) {
      read_text(key, value, path_of(key.name), source.path);
      return source;
    }
    bool has_path = false;
    tables_.push_back({path_of(key.name), &value, {}});
    has_path = find("path") != nullptr;
    tables_.back().known.clear();
    text({"path", "the path of a token file"}, source.path);
    if (value.table.count("weight"))
      real({"weight", "the share of samples, relative to the other weights"}, source.weight,
           {.min = 0, .max = 1e9, .excludes_min = true});
    tables_.back().known.push_back("weight");
    if (!has_path)
      report(tables_.back().path, value, fmt::format("{} has a source without a path.", tables_.back().path), "",
             "write {path = \"...\", weight = 1.0}.");
    report_unknown();
    tables_.pop_back();
    return source;
  }

  void report_unknown() {
    const Table& table = tables_.back();
    if (!table.values) return;
    for (const auto& [key, value] : table.values->table) {
      const bool is_known = std::find(table.known.begin(), table.known.end(), key) != table.known.end();
      if (is_known) continue;
      const UnknownKey unknown = {table.path, key, table.known};
      const std::string meant = meant_path(unknown, value);
      findings_.add(unknown_key(unknown, value, meant));
      if (!meant.empty()) places_.mark_unusable(meant);
    }
  }

  ConfigPlaces& places_;
  Findings& findings_;
  std::vector<Table> tables_;
  std::vector<std::pair<std::string, Finding>> missing_;
};

void fill_in_names(Config& config, const std::string& origin) {
  namespace fs = std::filesystem;
  if (config.run.name.empty()) config.run.name = fs::path(origin).stem().string();
  if (config.run.dir.empty()) config.run.dir = "runs/" + config.run.name;
  if (config.checkpoint.dir.empty()) config.checkpoint.dir = (fs::path(config.run.dir) / "checkpoints").string();
}

void refuse_empty(const std::string& text, const std::string& origin) {
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) return;
  throw tensor::ConfigError(
      fmt::format("{}:1: the file is empty.\n  A config names at least a model, token files and the number of steps.\n"
                  "  Fix: start from one in configs/.",
                  origin));
}

}  // namespace

Config parse_config(const std::string& text, const std::string& origin, const std::vector<std::string>& overrides) {
  const std::string shown = printable(origin);
  refuse_empty(text, shown);
  TomlValue root = parse_toml(text, shown);
  Findings findings;
  for (const std::string& override_text : overrides) apply_override(root, override_text, findings);

  Config config;
  ConfigPlaces places(shown);
  ConfigReader reader(root, places, findings);
  visit_keys(reader, config);
  reader.finish();
  fill_in_names(config, origin);
  check_config(config, places, findings);
  findings.throw_if_any();
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_config(read_config_file(path), path, overrides);
}

}  // namespace trainer
