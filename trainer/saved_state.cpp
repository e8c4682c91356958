#include "trainer/saved_state.h"

#include <array>

#include "checkpoint/single_file.h"
#include "trainer/scalars.h"

namespace trainer {

SavedState::SavedState(const Config& config, Learner& learner)
    : config_(config), learner_(learner), world_(learner.context().world()) {}

LogicalState SavedState::logical_state() const {
  return {learner_.state(), learner_.parameters(), world_, learner_.ops().device()};
}

std::optional<checkpoint::Resumed> SavedState::load() {
  LogicalState logical = logical_state();
  std::optional<checkpoint::Resumed> resumed;
  if (world_.rank() == 0) resumed = read(logical);
  share_progress(resumed);
  if (!resumed) return resumed;
  logical.scatter();
  learner_.loaded();
  return resumed;
}

std::optional<checkpoint::Resumed> SavedState::read(LogicalState& logical) const {
  const std::string& from = config_.checkpoint.resume;
  const std::vector<checkpoint::NamedTensor> tensors = logical.tensors();
  if (from == "auto" || from == "none") return checkpoint::resume_newest(config_.checkpoint.dir, tensors);
  return checkpoint::Resumed{.info = checkpoint::load(from, tensors), .path = from, .warnings = {}};
}

void SavedState::share_progress(std::optional<checkpoint::Resumed>& resumed) {
  // Sums to which rank 0 alone contributes.
  std::array<int64_t, 5> numbers{};
  if (resumed) {
    const checkpoint::Progress& progress = resumed->info.progress;
    numbers = {1, progress.step, progress.samples, progress.tokens, static_cast<int64_t>(progress.seed)};
  }
  all_reduce_integers(world_, learner_.ops().device(), numbers);
  if (numbers[0] == 0 || world_.rank() == 0) return;
  resumed.emplace();
  resumed->info.progress = {numbers[1], numbers[2], numbers[3], static_cast<uint64_t>(numbers[4])};
}

std::string SavedState::save(const checkpoint::RunInfo& info) {
  LogicalState logical = logical_state();
  logical.gather();
  if (world_.rank() != 0) return {};
  return checkpoint::save_in(config_.checkpoint.dir, info, logical.tensors(), config_.checkpoint.keep_last);
}

void SavedState::require_free_space(const checkpoint::RunInfo& info) const {
  LogicalState logical = logical_state();
  if (world_.rank() != 0) return;
  checkpoint::require_free_space(config_.checkpoint.dir, checkpoint::file_bytes(info, logical.tensors()));
}

}  // namespace trainer
