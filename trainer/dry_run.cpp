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

Bill take_step(Learner& learner, const Config& config, const data::Batch& batch) {
  learner.train({}, batch);
  agree({}, learner.context().world(), learner.ops().device());
  if (config.log.trace) learner.measure_bubble();
  return learner.context().ledger().end_step();
}

/// The bill of a step of `num_microbatches`, from those of two and three: where micro-batches are taken one by one,
/// each more costs the same.
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
    return take_step(learner, config, paper_batch(config, num_microbatches * split.micro_batch_size));
  };
  const bool grows_evenly = config.parallel.schedule == "1f1b" && learner.context().mesh().degrees().pp == 1;
  if (split.num_microbatches <= 3 || !grows_evenly) return bill_of(split.num_microbatches);
  const Bill two = bill_of(2);
  return extended(two, bill_of(3), split.num_microbatches);
}

PlannedPipeline pipeline_of(const Config& config, const RankContext& context) {
  const PipelinePlan& plan = context.pipeline();
  const auto& training = plan.training(split_batch(config, context.num_data_ranks()).num_microbatches);
  PlannedPipeline pipeline{.schedule = config.parallel.schedule,
                           .hash = fmt::format("{:016x}", schedule_hash(training.schedule)),
                           .stages = {},
                           .idle_over_ideal = training.prediction.idle_over_ideal(),
                           .idle_over_total = training.prediction.idle_over_total(),
                           .peak_live = training.prediction.peak_live};
  const model::PartCosts costs = model::part_costs(config.model);
  const double all = span_cost(costs, model::whole_model(config.model));
  for (size_t i = 0; i < plan.spans().size(); ++i) {
    const model::StageSpan& span = plan.spans()[i];
    pipeline.stages.push_back(
        {plan.rank_of_stage()[i], span.first_layer, span.last_layer, span_cost(costs, span) / all});
  }
  return pipeline;
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
  PlannedUnit total{.name = "total", .numel = store.stored_numel()};
  for (const auto& unit : store.units()) {
    total.own.end += unit->own.size();
    if (unit->cut_sizes.size() == cuts.size()) {
      for (size_t rank = 0; rank < cuts.size(); ++rank) cuts[rank] += unit->cut_sizes[rank];
    } else {  // experts, cut over other ranks
      const auto [least, largest] = std::ranges::minmax(unit->cut_sizes);
      total.least_cut += least;
      total.largest_cut += largest;
    }
  }
  const auto [least, largest] = std::ranges::minmax(cuts);
  total.least_cut += least;
  total.largest_cut += largest;
  return total;
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

DryRun dry_run(const Config& config, int world_size, int rank) {
  tensor::Backend backend = tensor::make_paper_backend();
  parallel::Ledger ledger;
  parallel::PaperCommunicatorFactory factory(rank, world_size, ledger);
  const RankContext context(config, rank, world_size, factory, {.ledger = ledger});
  Learner learner(config, backend, context);
  const Bill bill = step_bill(learner, config, split_batch(config, context.num_data_ranks()));
  const parallel::ParameterStore& store = learner.parameters();
  return {pipeline_of(config, context), units_of(store), total_of(store), memory_of(backend.device->pool()), bill};
}

}  // namespace trainer
