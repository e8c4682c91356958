#pragma once
/// TOML to Config and back. Reading is strict: every unknown key, wrong type, value out of range and contradiction is
/// reported at once, each with file and line, before anything is written.

#include <string>
#include <vector>

#include "trainer/config.h"

namespace trainer {

/// Reads a config file. `overrides` are the values of --set: "table.key=value", later ones win; the value is TOML, and
/// a bare word is a string. Empty run.name, run.dir and checkpoint.dir are filled in. Throws ConfigError, or
/// LayoutError where only the layout is unusable.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// The same from text; `origin` stands for the file name.
Config parse_config(const std::string& text, const std::string& origin, const std::vector<std::string>& overrides = {});

/// All keys with their values and meanings, as TOML that reads back to an equal config.
std::string to_toml(const Config& config);

}  // namespace trainer
