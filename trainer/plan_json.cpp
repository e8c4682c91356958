#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trainer/plan.h"

namespace trainer {

using Json = nlohmann::ordered_json;
using parallel::Collective;
using tensor::Dtype;
using tensor::MemoryCategory;

namespace {

/// The member of an enum whose name to_string() gives.
template <class Enum>
Enum named(const std::string& name, std::initializer_list<Enum> members) {
  for (const Enum member : members) {
    if (to_string(member) == name) return member;
  }
  throw std::invalid_argument("a plan does not know \"" + name + "\"");
}

Dtype dtype_named(const std::string& name) {
  return named(name, {Dtype::fp32, Dtype::bf16, Dtype::fp64, Dtype::int32, Dtype::int64});
}

Collective collective_named(const std::string& name) {
  return named(name, {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                      Collective::all_to_all_v, Collective::broadcast, Collective::send, Collective::receive});
}

MemoryCategory category_named(const std::string& name) {
  return named(name, {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer,
                      MemoryCategory::activations, MemoryCategory::workspace, MemoryCategory::other});
}

Json degrees_json(const parallel::Degrees& d) {
  return {{"tp", d.tp},         {"sp", d.sp}, {"dp_in", d.dp_in},        {"pp", d.pp},
          {"dp_out", d.dp_out}, {"ep", d.ep}, {"expert_tp", d.expert_tp}};
}

parallel::Degrees degrees_from(const Json& j) {
  return {.tp = j.at("tp"),
          .sp = j.at("sp"),
          .dp_in = j.at("dp_in"),
          .pp = j.at("pp"),
          .dp_out = j.at("dp_out"),
          .ep = j.at("ep"),
          .expert_tp = j.at("expert_tp")};
}

Json bill_json(const parallel::Bill& bill) {
  Json lines = Json::array();
  for (const auto& [key, line] : bill) {
    lines.push_back({{"group", key.axis},
                     {"operation", to_string(key.op)},
                     {"dtype", to_string(key.dtype)},
                     {"calls", line.calls},
                     {"elements", line.count},
                     {"bytes", line.bytes}});
  }
  return lines;
}

parallel::Bill bill_from(const Json& lines) {
  parallel::Bill bill;
  for (const Json& j : lines) {
    const parallel::BillKey key = {j.at("group"), collective_named(j.at("operation")), dtype_named(j.at("dtype"))};
    bill[key] = {.calls = j.at("calls"), .count = j.at("elements"), .bytes = j.at("bytes")};
  }
  return bill;
}

Json unit_json(const PlannedUnit& unit) {
  return {{"name", unit.name},
          {"elements", unit.numel},
          {"own", {unit.own.begin, unit.own.end}},
          {"least_cut", unit.least_cut},
          {"largest_cut", unit.largest_cut}};
}

PlannedUnit unit_from(const Json& j) {
  return {.name = j.at("name"),
          .numel = j.at("elements"),
          .own = {j.at("own").at(0), j.at("own").at(1)},
          .least_cut = j.at("least_cut"),
          .largest_cut = j.at("largest_cut")};
}

Json pipeline_json(const PlannedPipeline& pipeline) {
  Json stages = Json::array();
  for (const PlannedStage& stage : pipeline.stages) {
    stages.push_back({{"rank", stage.rank}, {"layers", {stage.first_layer, stage.last_layer}}, {"share", stage.share}});
  }
  return {{"schedule", pipeline.schedule},
          {"hash", pipeline.hash},
          {"stages", stages},
          {"idle_over_ideal", pipeline.idle_over_ideal},
          {"idle_over_total", pipeline.idle_over_total},
          {"peak_live", pipeline.peak_live}};
}

PlannedPipeline pipeline_from(const Json& j) {
  PlannedPipeline pipeline{.schedule = j.at("schedule"),
                           .hash = j.at("hash"),
                           .stages = {},
                           .idle_over_ideal = j.at("idle_over_ideal"),
                           .idle_over_total = j.at("idle_over_total"),
                           .peak_live = j.at("peak_live").get<std::vector<int>>()};
  for (const Json& stage : j.at("stages")) {
    pipeline.stages.push_back(
        {stage.at("rank"), stage.at("layers").at(0), stage.at("layers").at(1), stage.at("share")});
  }
  return pipeline;
}

Json units_json(const std::vector<PlannedUnit>& units) {
  Json list = Json::array();
  for (const PlannedUnit& unit : units) list.push_back(unit_json(unit));
  return list;
}

Json groups_json(const std::vector<PlannedGroup>& groups) {
  Json list = Json::array();
  for (const PlannedGroup& group : groups) {
    list.push_back({{"names", group.names}, {"size", group.size}, {"ranks", group.ranks}});
  }
  return list;
}

Json memory_json(const std::vector<PlannedMemory>& memory) {
  Json list = Json::array();
  for (const PlannedMemory& m : memory) {
    list.push_back({{"category", to_string(m.category)}, {"kept_bytes", m.kept_bytes}, {"peak_bytes", m.peak_bytes}});
  }
  return list;
}

}  // namespace

std::string to_json(const Plan& plan) {
  const Json json = {{"world_size", plan.world_size},
                     {"rank", plan.rank},
                     {"degrees", degrees_json(plan.degrees)},
                     {"groups", groups_json(plan.groups)},
                     {"zero_stage", plan.zero_stage},
                     {"compute", to_string(plan.compute)},
                     {"num_parameters", plan.num_parameters},
                     {"global_batch_size", plan.global_batch_size},
                     {"seq_len", plan.seq_len},
                     {"sequences_per_rank", plan.split.sequences_per_rank},
                     {"micro_batch_size", plan.split.micro_batch_size},
                     {"num_microbatches", plan.split.num_microbatches},
                     {"pipeline", pipeline_json(plan.pipeline)},
                     {"units", units_json(plan.units)},
                     {"total", unit_json(plan.total)},
                     {"memory", memory_json(plan.memory)},
                     {"bill", bill_json(plan.bill)}};
  return json.dump(2) + "\n";
}

Plan plan_from_json(const std::string& text) {
  const Json json = Json::parse(text);
  Plan plan{.world_size = json.at("world_size"),
            .rank = json.at("rank"),
            .degrees = degrees_from(json.at("degrees")),
            .groups = {},
            .zero_stage = json.at("zero_stage"),
            .compute = dtype_named(json.at("compute")),
            .num_parameters = json.at("num_parameters"),
            .global_batch_size = json.at("global_batch_size"),
            .seq_len = json.at("seq_len"),
            .split = {.sequences_per_rank = json.at("sequences_per_rank"),
                      .micro_batch_size = json.at("micro_batch_size"),
                      .num_microbatches = json.at("num_microbatches")},
            .pipeline = pipeline_from(json.at("pipeline")),
            .units = {},
            .total = unit_from(json.at("total")),
            .memory = {},
            .bill = bill_from(json.at("bill"))};
  for (const Json& j : json.at("groups")) plan.groups.push_back({j.at("names"), j.at("size"), j.at("ranks")});
  for (const Json& j : json.at("units")) plan.units.push_back(unit_from(j));
  for (const Json& j : json.at("memory")) {
    plan.memory.push_back({category_named(j.at("category")), j.at("kept_bytes"), j.at("peak_bytes")});
  }
  return plan;
}

}  // namespace trainer
