#pragma once
/// Checkpoints of many ranks, saved and loaded by one: this process.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/resume.h"
#include "checkpoint/sharded_save.h"
#include "tensor/ops.h"
#include "tests/checkpoint/state_of_a_run.h"

namespace tests {

/// The parts of a state that one rank has when it has all: every tensor, but for empty ones.
inline std::vector<checkpoint::LocalFragment> whole_fragments(StateOfARun& state) {
  std::vector<checkpoint::LocalFragment> fragments;
  for (const checkpoint::NamedTensor& named : state.named()) {
    const tensor::Tensor& x = *named.tensor;
    if (x.numel() == 0) continue;
    fragments.push_back({.info = {named.name, x.dtype(), x.shape()},
                         .fragment = {.tensor = 0, .box = checkpoint::whole_box(x.shape()), .range = {0, x.numel()}},
                         .values = x.reshaped({x.numel()})});
  }
  return fragments;
}

class OneRank {
 public:
  tensor::Device& device() const { return wire_.device(); }

  std::string save(const std::string& dir, int64_t step, StateOfARun& state) const {
    checkpoint::create_checkpoint_folder(dir);
    return checkpoint::save_sharded(wire_, dir, run_info(step), whole_fragments(state));
  }
  std::optional<checkpoint::Resumed> resume_newest(const std::string& dir, StateOfARun& state) const {
    return checkpoint::resume_newest(wire_, dir, whole_fragments(state));
  }
  checkpoint::Resumed resume_from(const std::string& path, StateOfARun& state) const {
    return checkpoint::resume_from(wire_, path, whole_fragments(state));
  }

 private:
  tensor::Backend backend_ = tensor::make_cpu_backend({.num_threads = 1});
  std::unique_ptr<parallel::Communicator> group_ = parallel::make_self_communicator("world");
  checkpoint::Wire wire_{*group_, *backend_.device};
};

}  // namespace tests
