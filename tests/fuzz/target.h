#pragma once
/// What the fuzzer can feed: one target for each parser of files that others may have made.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tests/fuzz/random.h"

namespace fuzz {

class Target {
 public:
  virtual ~Target() = default;
  /// Draws an input, which depends on `random` alone, and has it parsed. Throws what the parser throws.
  virtual void feed(Random& random) = 0;
};

struct TargetEntry {
  std::string name;
  std::vector<tensor::ExitCode> refusals;  ///< kinds of errors that the parser may throw; any other is a finding
  std::function<std::unique_ptr<Target>(const std::string& folder)> make;  ///< works in that folder
};

std::vector<TargetEntry> checkpoint_targets();
std::vector<TargetEntry> data_targets();
std::vector<TargetEntry> text_targets();

}  // namespace fuzz
