#include <fmt/format.h>

#include "parallel/text_table.h"
#include "trainer/plan.h"
#include "trainer/progress_format.h"

namespace trainer {

using parallel::format_table;
using parallel::with_commas;

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string batch_text(const Plan& plan) {
  return fmt::format("a step takes {} sequences of {} tokens, {} tokens; a rank takes {}, in {} micro-batch{} of {}\n",
                     with_commas(plan.global_batch_size), with_commas(plan.seq_len),
                     with_commas(plan.global_batch_size * plan.seq_len), with_commas(plan.split.sequences_per_rank),
                     with_commas(plan.split.num_microbatches), plan.split.num_microbatches == 1 ? "" : "es",
                     with_commas(plan.split.micro_batch_size));
}

std::string groups_text(const Plan& plan) {
  if (plan.groups.empty()) return "";
  Rows rows = {{"group", "ranks", "size"}};
  for (const PlannedGroup& group : plan.groups) {
    std::string names;
    for (const std::string& name : group.names) names += (names.empty() ? "" : " ") + name;
    rows.push_back({names, group.ranks, with_commas(group.size)});
  }
  constexpr size_t kNumWords = 2;
  return fmt::format("\ngroups of rank {}\n", plan.rank) + format_table(rows, kNumWords);
}

/// What the i-th stage has.
std::string parts_text(const PlannedPipeline& pipeline, size_t i) {
  const PlannedStage& stage = pipeline.stages[i];
  const int64_t count = stage.last_layer - stage.first_layer;
  std::string text = count == 0   ? ""
                     : count == 1 ? fmt::format("layer {}", stage.first_layer)
                                  : fmt::format("layers {} to {}", stage.first_layer, stage.last_layer - 1);
  if (i == 0) text = text.empty() ? "embedding" : "embedding, " + text;
  if (i + 1 == pipeline.stages.size()) text += text.empty() ? "head" : ", head";
  return text.empty() ? "nothing" : text;
}

std::string pipeline_text(const Plan& plan) {
  const PlannedPipeline& pipeline = plan.pipeline;
  if (pipeline.stages.size() == 1) return "";
  Rows rows = {{"stage", "rank of pp", "has", "share"}};
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    const PlannedStage& stage = pipeline.stages[i];
    rows.push_back({std::to_string(i), std::to_string(stage.rank), parts_text(pipeline, i),
                    fmt::format("{:.1f} %", 100 * stage.share)});
  }
  constexpr size_t kNumWords = 3;
  return fmt::format(
             "\nschedule {}: idle {:.1f} % of the ideal time, {:.1f} % of all; at once a rank keeps {} micro-batches\n",
             pipeline.schedule, 100 * pipeline.idle_over_ideal, 100 * pipeline.idle_over_total,
             fmt::join(pipeline.peak_live, ", ")) +
         format_table(rows, kNumWords);
}

bool differ_in_name_only(PlannedUnit a, const PlannedUnit& b) {
  a.name = b.name;
  return a == b;
}

std::vector<std::string> unit_row(const std::string& name, int64_t count, const PlannedUnit& unit) {
  return {name,
          with_commas(count),
          with_commas(unit.numel),
          with_commas(unit.own.size()),
          with_commas(unit.least_cut),
          with_commas(unit.largest_cut)};
}

/// Neighbours that are cut alike (layers) in one line.
std::string units_text(const Plan& plan) {
  Rows rows = {{"unit", "how many", "elements", "own", "least", "most"}};
  for (size_t i = 0; i < plan.units.size();) {
    const PlannedUnit& first = plan.units[i];
    size_t end = i + 1;
    while (end < plan.units.size() && differ_in_name_only(first, plan.units[end])) ++end;
    const auto count = static_cast<int64_t>(end - i);
    rows.push_back(unit_row(count == 1 ? first.name : first.name + " to " + plan.units[end - 1].name, count, first));
    i = end;
  }
  rows.push_back(unit_row(plan.total.name, std::ssize(plan.units), plan.total));
  constexpr size_t kNumWords = 1;
  return fmt::format(
             "\nelements of parameters on rank {}; own: its cut, by which zero_stage shares out; least, most: of its "
             "zero group\n",
             plan.rank) +
         format_table(rows, kNumWords);
}

std::string memory_text(const Plan& plan) {
  Rows rows = {{"category", "between steps", "peak", ""}};
  for (const PlannedMemory& m : plan.memory) {
    rows.push_back(
        {to_string(m.category), with_commas(m.kept_bytes), with_commas(m.peak_bytes), format_bytes(m.peak_bytes)});
  }
  constexpr size_t kNumWords = 1;
  return fmt::format("\nmemory of rank {}, bytes\n", plan.rank) + format_table(rows, kNumWords);
}

std::string bill_text(const Plan& plan) {
  if (plan.bill.empty()) return "\none rank: nothing is sent\n";
  return fmt::format("\nwhat rank {} moves in one step\n", plan.rank) + format_bill(plan.bill);
}

}  // namespace

std::string layout_in_words(const Plan& plan) {
  const parallel::Degrees& d = plan.degrees;
  std::string product;
  const auto add = [&](const char* axis, int degree) {
    if (degree > 1) product += fmt::format("{}{} {}", product.empty() ? " = " : " * ", axis, degree);
  };
  add("tp", d.tp);
  add("sp", d.sp);
  add(d.dp_out > 1 ? "dp_in" : "dp", d.dp_in);
  add("pp", d.pp);
  add("dp_out", d.dp_out);
  std::string experts;  // over the same ranks
  if (d.ep > 1) experts += fmt::format(", ep {}", d.ep);
  if (d.expert_tp > 1) experts += fmt::format(", expert_tp {}", d.expert_tp);
  return fmt::format("{} rank{}{}{}, zero_stage {}", with_commas(plan.world_size), plan.world_size == 1 ? "" : "s",
                     product, experts, plan.zero_stage);
}

std::string to_text(const Plan& plan) {
  return fmt::format("plan {}: {}\n", plan_hash(plan), layout_in_words(plan)) +
         fmt::format("{} weights, computed in {}\n", with_commas(plan.num_parameters), to_string(plan.compute)) +
         batch_text(plan) + pipeline_text(plan) + groups_text(plan) + units_text(plan) + memory_text(plan) +
         bill_text(plan);
}

}  // namespace trainer
