#pragma once
/// What the layout fuzzer tries: a small model and a way to split it, both drawn from one seed.

#include <cstdint>

#include "trainer/config.h"

namespace tests {

struct LayoutDraw {
  uint64_t seed = 0;
  int num_ranks = 1;  ///< that the layout takes
  trainer::Config config;
};

/// Always the same for a seed and a largest world. Legal by the program's own rules, which the draw is repeated for:
/// the config reads back from its TOML, and the model can be shared out over the layout.
LayoutDraw draw_layout(uint64_t seed, int most_ranks);

/// Another layout of the same model, batch and steps: what a checkpoint of the first may be resumed under.
LayoutDraw draw_other_layout(const LayoutDraw& first, uint64_t seed, int most_ranks);

}  // namespace tests
