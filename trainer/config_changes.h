#pragma once
/// What a run's config says that its checkpoint's did not.

#include <string>
#include <vector>

namespace trainer {

/// "train.steps = 24 (was 12)" for every key of two texts of to_toml() that differs and may change numbers; where, how
/// often and from what a run is saved and logged does not. In order of `now`; a key that `before` lacks "was not
/// there".
std::vector<std::string> config_changes(const std::string& before, const std::string& now);

}  // namespace trainer
