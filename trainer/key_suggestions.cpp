#include "trainer/key_suggestions.h"

#include <algorithm>

#include "trainer/config_keys.h"
#include "trainer/nearest.h"
#include "trainer/printable.h"

namespace trainer {
namespace {

class PathCollector : public KeyVisitor {
 public:
  void begin_table(const char* name) override { prefix_.push_back(prefix_.back() + name + "."); }
  void end_table() override { prefix_.pop_back(); }
  void boolean(const Key& key, bool&) override { add(key); }
  void integer(const Key& key, int64_t&, const IntegerRange&) override { add(key); }
  void real(const Key& key, double&, const RealRange&) override { add(key); }
  void text(const Key& key, std::string&) override { add(key); }
  void name_of(const Key& key, size_t&, const std::vector<std::string>&) override { add(key); }
  void sources(const Key& key, std::vector<data::DataSource>&) override { add(key); }
  void integers(const Key& key, std::vector<int64_t>&, const IntegerRange&) override { add(key); }
  void paths(const Key& key, std::vector<std::string>&) override { add(key); }
  void preset(const Key& key, model::ModelConfig&) override { add(key); }

  std::vector<std::string> paths_found;

 private:
  void add(const Key& key) { paths_found.push_back(prefix_.back() + key.name); }

  std::vector<std::string> prefix_ = {""};
};

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// The path whose last part is `key` or near to it; "" if none.
std::string elsewhere(const std::string& key) {
  std::vector<std::string> names;
  const std::vector<std::string> paths = all_key_paths();
  for (const std::string& path : paths) names.push_back(last_part(path));
  constexpr size_t kShortest = 3;  // anything is near to a shorter word
  const bool is_exact = std::find(names.begin(), names.end(), key) != names.end();
  const std::string found = is_exact || key.size() >= kShortest ? nearest(key, names) : "";
  for (size_t i = 0; i < paths.size(); ++i)
    if (!found.empty() && names[i] == found) return paths[i];
  return "";
}

}  // namespace

std::vector<std::string> all_key_paths() {
  PathCollector collector;
  Config config;
  visit_keys(collector, config);
  return collector.paths_found;
}

std::string meant_path(const UnknownKey& unknown, const TomlValue& value) {
  const bool is_table = value.kind == TomlValue::Kind::table;
  const bool may_be_here = is_table || !unknown.table.empty();  // at the top there are tables only
  const std::string here = may_be_here ? nearest(unknown.key, unknown.known) : "";
  const std::string there = is_table ? "" : elsewhere(unknown.key);
  const bool is_exact_there = !there.empty() && last_part(there) == unknown.key;
  if (here.empty() || is_exact_there) return there;
  return unknown.table.empty() ? here : unknown.table + "." + here;
}

Finding unknown_key(const UnknownKey& unknown, const TomlValue& value, const std::string& meant) {
  const bool is_at_top = unknown.table.empty();
  const bool is_table = value.kind == TomlValue::Kind::table;
  const std::string path = printable(is_at_top ? unknown.key : unknown.table + "." + unknown.key);
  const std::string known = join_or(unknown.known);
  Finding finding = {value.place, fmt::format("there is no key {}.", path), "", ""};
  if (is_table) finding.what = fmt::format("there is no table [{}].", path);
  if (is_at_top && !is_table) finding.what = fmt::format("{} stands outside of any table.", path);

  const bool is_here = is_table || meant.rfind(unknown.table + ".", 0) == 0;
  if (!meant.empty()) {
    const std::string table = is_here ? "" : fmt::format(", in table [{}]", meant.substr(0, meant.rfind('.')));
    finding.fix = fmt::format("did you mean {}{}?", meant, table);
  } else if (is_at_top && !is_table) {
    finding.fix = fmt::format("put it under one of the tables {}.", known);
  } else {
    finding.fix = fmt::format("remove it, or use one of {}.", known);
  }
  return finding;
}

}  // namespace trainer
