#pragma once
/// Everything that is wrong with a run config, collected so that it is reported at once.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tensor/error.h"

namespace trainer {

/// Where each key of a config came from, by path ("model.num_heads"): "configs/a.toml:12", or its --set.
class ConfigPlaces {
 public:
  explicit ConfigPlaces(std::string origin) : origin_(std::move(origin)) {}

  void set(const std::string& path, const std::string& place) { places_[path] = place; }
  void mark_unusable(const std::string& path) { unusable_.insert(path); }

  bool is_given(const std::string& path) const { return places_.count(path) > 0; }
  bool is_unusable(const std::string& path) const { return unusable_.count(path) > 0; }

  /// Of the key; if it was not given, of its table; if that was not either, the file.
  std::string of(std::string path) const;

 private:
  std::string origin_;
  std::map<std::string, std::string> places_;
  std::set<std::string> unusable_;
};

/// What to tell the user about one mistake.
struct Finding {
  std::string place;
  std::string what;  ///< with the value, and what it must be
  std::string why;   ///< may be empty
  std::string fix;
};

class Findings {
 public:
  void add(Finding finding, tensor::ExitCode code = tensor::ExitCode::config);

  bool empty() const { return messages_.empty(); }

  /// Throws what was found, ordered by line: LayoutError if nothing but the layout is wrong, else ConfigError.
  void throw_if_any() const;

 private:
  struct Message {
    std::string place, text;
  };
  std::vector<Message> messages_;
  bool has_config_error_ = false;
};

}  // namespace trainer
