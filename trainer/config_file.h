#pragma once
/// From a config file and --set to one tree of values.

#include <string>

#include "trainer/findings.h"
#include "trainer/toml_tree.h"

namespace trainer {

/// Throws ConfigError for what is missing, no file, or too large.
std::string read_config_file(const std::string& path);

/// Puts the value of "table.key=value" in the tree.
void apply_override(TomlValue& root, const std::string& override_text, Findings& findings);

}  // namespace trainer
