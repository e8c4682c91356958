#pragma once
/// From what a config asks for to the degrees of a mesh, or to every reason why not, all at once.

#include <string>
#include <vector>

#include "parallel/config.h"
#include "parallel/mesh.h"

namespace parallel {

/// One mistake. `key` is the config key to point at; `text` is whole sentences: what, why, and a line "Fix: ...".
struct LayoutProblem {
  std::string key;  ///< "parallel.ep"
  std::string text;
};

struct ResolvedLayout {
  Degrees degrees;  ///< only when there are no problems
  std::vector<LayoutProblem> problems;
};

/// Fits a config to a world of `world_size` ranks.
ResolvedLayout resolve_layout(const ParallelConfig& config, int world_size);

/// What is wrong with degrees on their own: one below 1, experts that do not fit the block.
std::vector<LayoutProblem> degree_problems(const Degrees& degrees);

/// One LayoutError that lists all problems; nothing where there are none.
void throw_if_any(const std::vector<LayoutProblem>& problems);

}  // namespace parallel
