#pragma once
/// Published model shapes by name: model.preset = "gpt2-124m". Dropout is 0 in all.

#include <optional>
#include <string>
#include <vector>

#include "model/config.h"

namespace trainer {

std::optional<model::ModelConfig> find_preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace trainer
