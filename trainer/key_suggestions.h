#pragma once
/// What to say about a key that no table has.

#include <string>
#include <vector>

#include "trainer/findings.h"
#include "trainer/toml_tree.h"

namespace trainer {

struct UnknownKey {
  std::string table;               ///< path of the table it stands in; "" for the top of the file
  std::string key;                 ///< as the user wrote it
  std::vector<std::string> known;  ///< what this table has
};

/// The path of the key that was probably meant: a near one of the table, else the same or a near one elsewhere, else
/// "".
std::string meant_path(const UnknownKey& unknown, const TomlValue& value);

/// Suggests `meant`; where that is empty, lists what the table has.
Finding unknown_key(const UnknownKey& unknown, const TomlValue& value, const std::string& meant);

/// "model.num_layers" of every key.
std::vector<std::string> all_key_paths();

}  // namespace trainer
