#include "trainer/dry_run.h"

#include <algorithm>

#include "parallel/paper_communicator.h"
#include "trainer/agreement.h"
#include "trainer/learner.h"

namespace trainer {

using parallel::Bill;
using parallel::BillLine;
using tensor::MemoryCategory;

namespace {

/// What the tokens are makes no difference on paper.
data::Batch paper_batch(const Config& config, int64_t num_sequences) {
  const int64_t num_tokens = num_sequences * config.model.seq_len;
  const std::vector<int32_t> zeros(static_cast<size_t>(num_tokens));
  return {.first_sample = 0,
          .num_sequences = num_sequences,
          .seq_len = config.model.seq_len,
          .num_valid_targets = num_tokens,
          .tokens = zeros,
          .targets = zeros,
          .positions = zeros,
          .document_start = zeros};
}

Bill take_step(Learner& learner, const data::Batch& batch) {
  learner.train({}, batch);
  agree({}, learner.context().world(), learner.ops().device());
  return learner.context().ledger().end_step();
}

/// The bill of a step of `num_microbatches`, from those of two and three: each micro-batch more costs the same.
Bill extended(const Bill& two, const Bill& three, int64_t num_microbatches) {
  Bill bill = three;
  for (auto& [key, line] : bill) {
    const auto found = two.find(key);
    const BillLine before = found == two.end() ? BillLine{} : found->second;
    const int64_t more = num_microbatches - 3;
    line.calls += more * (line.calls - before.calls);
    line.count += more * (line.count - before.count);
    line.bytes += more * (line.bytes - before.bytes);
  }
  return bill;
}

Bill step_bill(Learner& learner, const Config& config, const BatchSplit& split) {
  const auto bill_of = [&](int64_t num_microbatches) {
    return take_step(learner, paper_batch(config, num_microbatches * split.micro_batch_size));
  };
  if (split.num_microbatches <= 3) return bill_of(split.num_microbatches);
  const Bill two = bill_of(2);
  return extended(two, bill_of(3), split.num_microbatches);
}

std::vector<PlannedUnit> units_of(const parallel::ParameterStore& store) {
  std::vector<PlannedUnit> units;
  for (const auto& unit : store.units()) {
    const auto [least, largest] = std::ranges::minmax(unit->cut_sizes);
    units.push_back({unit->name, unit->numel, unit->own, least, largest});
  }
  return units;
}

PlannedUnit total_of(const parallel::ParameterStore& store) {
  std::vector<int64_t> cuts(static_cast<size_t>(store.data_parallel().shard.size()));  // by rank
  for (const auto& unit : store.units()) {
    for (size_t rank = 0; rank < cuts.size(); ++rank) cuts[rank] += unit->cut_sizes[rank];
  }
  const auto [least, largest] = std::ranges::minmax(cuts);
  const int64_t own = cuts[static_cast<size_t>(store.data_parallel().shard.rank())];
  return {"total", store.stored_numel(), {0, own}, least, largest};
}

std::vector<PlannedMemory> memory_of(const tensor::Pool& pool) {
  std::vector<PlannedMemory> memory;
  for (const auto category : {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer,
                              MemoryCategory::activations}) {
    const tensor::MemoryUse use = pool.use(category);
    memory.push_back({category, use.live_bytes, use.peak_bytes});
  }
  return memory;
}

}  // namespace

BatchSplit split_batch(const Config& config, int num_data_ranks) {
  BatchSplit split;
  split.sequences_per_rank = config.train.global_batch_size / num_data_ranks;
  split.micro_batch_size = config.train.micro_batch_size > 0 ? config.train.micro_batch_size : split.sequences_per_rank;
  split.num_microbatches = split.sequences_per_rank / split.micro_batch_size;
  return split;
}

DryRun dry_run(const Config& config, int world_size, int rank) {
  tensor::Backend backend = tensor::make_paper_backend();
  parallel::Ledger ledger;
  parallel::PaperCommunicatorFactory factory(rank, world_size, ledger);
  const RankContext context(config, rank, world_size, factory, ledger);
  Learner learner(config, backend, context);
  const Bill bill = step_bill(learner, config, split_batch(config, context.num_data_ranks()));
  const parallel::ParameterStore& store = learner.parameters();
  return {units_of(store), total_of(store), memory_of(backend.device->pool()), bill};
}

}  // namespace trainer
