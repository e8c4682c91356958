#include "trainer/saved_state.h"

#include "checkpoint/directory.h"

namespace trainer {

using checkpoint::LocalFragment;
using parallel::Range;

namespace {

/// The part of the global tensor that the stored box holds, without padding.
checkpoint::Box box_of(const parallel::ParameterSpec& spec) {
  checkpoint::Box box = checkpoint::whole_box(spec.shape);
  if (!spec.slice) return box;
  const parallel::Slice& slice = *spec.slice;
  const int64_t held = slice.end - slice.begin;
  if (slice.dim == 0) {
    box.first_row = slice.begin;
    box.num_rows = held;
  } else {
    CHECK(slice.stored == held, "columns of {} are not padded", spec.name);
    box.first_column = slice.begin;
    box.num_columns = held;
  }
  return box;
}

/// Elements `range` of a state fragment's stored box; padding rows at its end are left out.
LocalFragment local_fragment(const StateFragment& state, const Range& range) {
  const parallel::ParameterSpec& spec = state.parameter->spec();
  const checkpoint::Box box = box_of(spec);
  const int64_t end = std::min(range.end, box.numel());
  const Range held = {std::min(range.begin, end), end};
  const int64_t begin = held.size() > 0 ? held.begin - state.range.begin : 0;
  return {.info = {state.kind + "/" + spec.name, state.values.dtype(), spec.shape},
          .fragment = {.tensor = 0, .box = box, .range = held},
          .values = state.values.rows(begin, begin + held.size())};
}

checkpoint::SaveOptions save_options(const checkpoint::CheckpointConfig& config) {
  constexpr double kMebibyte = 1 << 20;
  return {.dir = config.dir,
          .retention = {.keep_last = config.keep_last, .keep_every = config.keep_every},
          .staging_bytes = static_cast<int64_t>(config.staging_mb * kMebibyte)};
}

}  // namespace

SavedState::SavedState(const Config& config, Learner& learner)
    : config_(config),
      learner_(learner),
      wire_(learner.context().world(), learner.ops().device()),
      saving_(wire_, save_options(config.checkpoint)) {}

std::vector<LocalFragment> SavedState::owned() const {
  std::vector<LocalFragment> fragments;
  for (const StateFragment& state : learner_.state()) {
    LocalFragment local = local_fragment(state, learner_.parameters().owned_range(*state.parameter));
    if (local.fragment.numel() > 0) fragments.push_back(std::move(local));
  }
  return fragments;
}

std::vector<LocalFragment> SavedState::kept() const {
  std::vector<LocalFragment> fragments;
  for (const StateFragment& state : learner_.state()) fragments.push_back(local_fragment(state, state.range));
  return fragments;
}

std::optional<checkpoint::Resumed> SavedState::load() {
  const std::string& from = config_.checkpoint.resume;
  const std::vector<LocalFragment> wanted = kept();
  std::optional<checkpoint::Resumed> resumed;
  if (from == "auto" || from == "none") {
    resumed = resume_newest(wire_, config_.checkpoint.dir, wanted);
  } else {
    resumed = resume_from(wire_, from, wanted);
  }
  if (resumed) learner_.loaded();
  return resumed;
}

void SavedState::start_save(const checkpoint::RunInfo& info) { saving_.start(info, owned()); }

void SavedState::require_free_space() const {
  const int64_t bytes = wire_.sum(checkpoint::shard_bytes(owned()));
  if (wire_.is_root()) checkpoint::require_free_space(config_.checkpoint.dir, bytes);
}

}  // namespace trainer
