#pragma once
/// The keys of a run config, each listed once: name, field, range, meaning. Reading, writing, --set, suggestions for
/// mistyped keys and generated comments all walk this list (config_keys.cpp).

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config.h"

namespace trainer {

struct Key {
  const char* name;
  const char* meaning;  ///< finishes the sentence "it is ..."
};

/// Both ends included. A required key has a default outside of its range.
struct IntegerRange {
  int64_t min;
  int64_t max = std::numeric_limits<int64_t>::max() - 1;
  const char* word_for_zero = nullptr;  ///< "auto": may be written in place of 0
};

struct RealRange {
  double min;
  double max;
  bool excludes_min = false, excludes_max = false;
};

inline bool contains(const IntegerRange& range, int64_t x) {
  return (x >= range.min && x <= range.max) || (x == 0 && range.word_for_zero != nullptr);
}
inline bool contains(const RealRange& range, double x) {
  const bool above = range.excludes_min ? x > range.min : x >= range.min;
  const bool below = range.excludes_max ? x < range.max : x <= range.max;
  return above && below;
}

/// One walk over all tables and keys. A sub-table comes after the keys of its table.
class KeyVisitor {
 public:
  virtual ~KeyVisitor() = default;

  virtual void begin_table(const char* name) = 0;
  virtual void end_table() = 0;

  virtual void boolean(const Key& key, bool& field) = 0;
  virtual void integer(const Key& key, int64_t& field, const IntegerRange& range) = 0;
  virtual void real(const Key& key, double& field, const RealRange& range) = 0;
  virtual void text(const Key& key, std::string& field) = 0;
  virtual void name_of(const Key& key, size_t& index, const std::vector<std::string>& names) = 0;
  virtual void sources(const Key& key, std::vector<data::DataSource>& field) = 0;  ///< required
  virtual void integers(const Key& key, std::vector<int64_t>& field, const IntegerRange& range) = 0;
  virtual void paths(const Key& key, std::vector<std::string>& field) = 0;
  /// A name in TOML that stands for a whole table, whose keys then override it.
  virtual void preset(const Key& key, model::ModelConfig& table) = 0;

  template <class Enum>
  void choice(const Key& key, Enum& field, const std::vector<std::pair<std::string, Enum>>& options) {
    std::vector<std::string> names;
    for (const auto& option : options) names.push_back(option.first);
    const auto found = std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.second == field; });
    size_t index = static_cast<size_t>(found - options.begin());
    name_of(key, index, names);
    field = options.at(index).second;
  }
};

void visit_keys(KeyVisitor& keys, Config& config);

}  // namespace trainer
