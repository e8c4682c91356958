#pragma once
/// The same model on all ranks as one tensor-parallel group and on this rank alone, with the same weights and tokens.

#include <memory>
#include <vector>

#include "parallel/mpi_communicator_factory.h"
#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"
#include "tests/support/rank_test.h"

namespace tests {

using parallel::TokenSharding;

/// The small models with head counts, ffn sizes and sequences that four ranks can share; dropout in all.
inline model::ModelConfig shared_out(model::ModelConfig config) {
  config.num_layers = 2;
  config.num_heads = 4;
  config.ffn_hidden_size = 24;
  config.seq_len = 12;
  config.dropout = 0.2;
  return config;
}
/// qk-norm, one kv head for all, biases, sliding window, tied table.
inline model::ModelConfig shared_kitchen_sink() { return shared_out(kitchen_sink_config()); }
/// Two kv heads; a head of its own.
inline model::ModelConfig shared_llama() { return shared_out(llama_config()); }
/// As many kv heads as heads, biases, LayerNorm, learned positions, tied table.
inline model::ModelConfig shared_gpt2() { return shared_out(gpt2_config()); }

/// Some sequences hold several documents.
inline model::HostBatch batch_of_documents(const model::ModelConfig& config, int64_t num_sequences, uint64_t seed) {
  model::HostBatch batch = random_batch(config, num_sequences, seed);
  for (size_t i = 5; i < static_cast<size_t>(std::min<int64_t>(config.seq_len, std::ssize(batch.tokens))); ++i) {
    batch.document_start[i] = i < 9 ? 5 : 9;
  }
  return batch;
}

class TensorParallelTest : public testing::Test {
 protected:
  int size() const { return mpi_environment().world_size(); }

  /// The groups of all ranks as tp, for a model with that many kv heads.
  struct Groups {
    std::unique_ptr<parallel::Communicator> tp, kv_replicas;
    parallel::TensorParallel with(TokenSharding tokens) const { return {*tp, *kv_replicas, tokens}; }
  };
  Groups make_groups(int64_t num_kv_heads) {
    const parallel::Mesh mesh({.tp = size()});
    const int rank = mpi_environment().world_rank();
    return {factory_.make("tp", mesh.group(parallel::Group::tp, rank)),
            factory_.make("kv", parallel::kv_replica_ranks(mesh, rank, num_kv_heads))};
  }

  parallel::Ledger ledger_;
  parallel::MpiCommunicatorFactory factory_{mpi_environment(), ledger_};
};

/// Elements kept_range() of a parameter's gradient.
inline Values kept_gradient(const parallel::ParameterStore& store, const parallel::Parameter& parameter) {
  const parallel::Range kept = store.kept_range(parameter);
  if (kept.size() == 0) return {};
  const parallel::ParameterUnit& unit = parameter.unit();
  const parallel::Range here = store.optimizer_range(unit);
  const int64_t begin = parameter.offset() + kept.begin - here.begin;
  const tensor::Tensor& flat = store.options().stage == 0 ? unit.grads : unit.own_grads;
  return values_of(flat.rows(begin, begin + kept.size()));
}

/// The largest distance of the gradients that this rank keeps from those of one rank, each relative to the whole
/// tensor's norm.
inline WorstGradient worst_gradient(const TestModel& sharded, const TestModel& alone) {
  const Gradients expected = alone.gradients();
  const auto norm = [](const Values& x) { return relative_error(x, Values(x.size(), 0.0)); };
  WorstGradient worst;
  for (const parallel::Parameter* parameter : sharded.store.parameters()) {
    const std::string& name = parameter->name();
    // A bias of k moves all scores of a query alike where no RoPE turns it: its gradient is 0, so v's norm counts.
    const std::string measure = name.ends_with("k.bias") ? name.substr(0, name.size() - 6) + "v.bias" : name;
    const Values box = stored_box(parameter->spec(), expected.at(name));
    const parallel::Range kept = sharded.store.kept_range(*parameter);
    Values difference = kept_gradient(sharded.store, *parameter);
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= box[static_cast<size_t>(kept.begin) + i];
    const double error = norm(difference) / std::max(norm(expected.at(name)), norm(expected.at(measure)));
    if (!(error <= worst.error)) worst = {name, error};
  }
  return worst;
}

}  // namespace tests
