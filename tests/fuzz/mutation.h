#pragma once
/// Valid inputs, changed at random.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tests/fuzz/random.h"

namespace fuzz {

using Json = nlohmann::ordered_json;

/// A few bytes flipped, overwritten by numbers, moved, repeated; sometimes cut short. May become empty.
std::string with_other_bytes(std::string bytes, Random& random);

/// A few words (runs of letters and digits, or single other characters) replaced, repeated, left out or exchanged;
/// `dictionary` has what may come in.
std::string with_other_words(const std::string& text, const std::vector<std::string>& dictionary, Random& random);

/// A few values inside replaced, left out or repeated.
Json with_other_values(Json json, Random& random);

/// A JSON value that lies `depth` lists deep.
std::string nested_lists(size_t depth);

}  // namespace fuzz
