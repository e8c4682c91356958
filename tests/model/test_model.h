#pragma once
/// A whole model on the CPU, and batches for it.

#include <map>
#include <string>
#include <vector>

#include "model/stage.h"
#include "tests/support/tensors.h"

namespace tests {

using Gradients = std::map<std::string, Values>;  ///< by parameter name

/// |a - b| / |b|, Euclidean.
inline double relative_error(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline double num_valid_targets(const model::HostBatch& batch) {
  return static_cast<double>(std::count_if(batch.targets.begin(), batch.targets.end(), [](int t) { return t >= 0; }));
}

/// Tokens and targets at random, one target in six ignored; each sequence is one document.
inline model::HostBatch random_batch(const model::ModelConfig& config, int64_t num_sequences, uint64_t seed) {
  model::HostBatch batch;
  batch.num_sequences = num_sequences;
  const auto draw = [&](int64_t i, int word) {
    return tensor::Philox::draw(tensor::Philox::counter(static_cast<uint64_t>(i), 1),
                                tensor::Philox::key(seed))[static_cast<size_t>(word)];
  };
  for (int64_t i = 0; i < num_sequences * config.seq_len; ++i) {
    const auto vocab_size = static_cast<uint32_t>(config.vocab_size);
    batch.tokens.push_back(static_cast<int32_t>(draw(i, 0) % vocab_size));
    batch.targets.push_back(draw(i, 2) % 6 == 0 ? -1 : static_cast<int32_t>(draw(i, 1) % vocab_size));
    batch.positions.push_back(static_cast<int32_t>(i % config.seq_len));
    batch.document_start.push_back(0);
    batch.token_index.push_back(i);
  }
  return batch;
}

/// Tokens [begin, end) of a batch of one sequence.
inline model::HostBatch tokens_of(const model::HostBatch& batch, int64_t begin, int64_t end) {
  const auto part = [&]<class T>(const std::vector<T>& whole) {
    return std::vector<T>(whole.begin() + begin, whole.begin() + end);
  };
  return {.num_sequences = 1,
          .tokens = part(batch.tokens),
          .targets = part(batch.targets),
          .positions = part(batch.positions),
          .document_start = part(batch.document_start),
          .token_index = part(batch.token_index)};
}

/// Sequences [first, first + count) of a batch.
inline model::HostBatch sequences_of(const model::HostBatch& batch, int64_t first, int64_t count) {
  const int64_t seq_len = std::ssize(batch.tokens) / batch.num_sequences;
  model::HostBatch part = tokens_of(batch, first * seq_len, (first + count) * seq_len);
  part.num_sequences = count;
  return part;
}

/// How a rank shares a model with others; null: with nobody.
struct Sharing {
  const parallel::TensorParallel* tensor_parallel = nullptr;
  const parallel::DataParallel* data_parallel = nullptr;
  parallel::ZeroOptions zero = {};
  const parallel::SequenceParallel* sequence_parallel = nullptr;
};

/// The groups of a rank that shares nothing.
struct AloneGroups {
  std::unique_ptr<parallel::Communicator> self = parallel::make_self_communicator("self");
  parallel::TensorParallel tensor_parallel{*self, *self};
  parallel::DataParallel data_parallel{*self, *self};

  /// Of a rank that shares in these ways and no other.
  parallel::LayerGroups with(const Sharing& sharing) const {
    const parallel::TensorParallel& tensor = sharing.tensor_parallel ? *sharing.tensor_parallel : tensor_parallel;
    return {.tensor = tensor,
            .sequence = sharing.sequence_parallel ? *sharing.sequence_parallel : parallel::SequenceParallel{*self},
            .expert = {*self, *self, tensor.tp, {*self, *self}}};
  }
  parallel::LayerGroups groups() const { return with(Sharing{}); }
};

/// What this rank stores of a parameter's values, row after row; padding is 0.
inline Values stored_box(const parallel::ParameterSpec& spec, const Values& global) {
  if (!spec.slice) return global;
  const parallel::Slice& slice = *spec.slice;
  const tensor::Shape stored = spec.stored_shape();
  const bool cuts_rows = slice.dim == 0;
  const int64_t width = stored.row_numel(), global_width = spec.shape.row_numel();
  const int64_t first = cuts_rows ? slice.begin * global_width : slice.begin;
  Values box(static_cast<size_t>(stored.numel()), 0.0);
  for (int64_t row = 0; row < (cuts_rows ? slice.end - slice.begin : stored[0]); ++row) {
    const int64_t count = cuts_rows ? width : slice.end - slice.begin;
    const auto from = global.begin() + first + row * global_width;
    std::copy(from, from + count, box.begin() + row * width);
  }
  return box;
}

class TestModel {
 public:
  TestModel(const model::ModelConfig& model_config, tensor::Dtype dtype, const model::StageOptions& options = {},
            int num_threads = 2, const Sharing& sharing = {})
      : config(model_config),
        backend(tensor::make_cpu_backend({.num_threads = num_threads})),
        ops(*backend.ops),
        store(sharing.zero, sharing.data_parallel ? *sharing.data_parallel : alone.data_parallel),
        stage(config, model::whole_model(config), options, alone.with(sharing), store) {
    if (sharing.sequence_parallel) part = sharing.sequence_parallel->part();
    store.allocate(ops, dtype);
    stage.prepare(*backend.device, dtype);
    for (const auto& unit : store.units()) {
      const Values values = stored_values(*unit);
      tensor::Tensor& kept = unit->values ? unit->values : unit->own_values;
      const int64_t begin = unit->values ? 0 : unit->own.begin;
      fill(kept, Values(values.begin() + begin, values.begin() + begin + kept.numel()));
    }
  }
  /// One rank of several, each of which makes its own.
  TestModel(const model::ModelConfig& model_config, tensor::Dtype dtype, const model::StageOptions& options,
            const parallel::TensorParallel& tensor_parallel)
      : TestModel(model_config, dtype, options, 1, {.tensor_parallel = &tensor_parallel}) {}

  model::MicroBatch upload(const model::HostBatch& host, double grad_scale = 1) {
    model::MicroBatch batch = model::to_device(host, config.sliding_window, part, *backend.device);
    batch.grad_scale = grad_scale;
    batch.step = 3;
    batch.step_sequences = step_sequences;
    return batch;
  }

  /// Forward and backward of one step's micro-batches; returns the sum of token losses. Gradients: of their mean.
  double run_step(const std::vector<model::HostBatch>& micro_batches) {
    double num_valid = 0;
    for (const model::HostBatch& host : micro_batches) num_valid += num_valid_targets(host);
    return run_step(micro_batches, 1 / num_valid);
  }
  double run_step(const std::vector<model::HostBatch>& micro_batches, double grad_scale) {
    double loss = 0;
    store.begin_step();
    for (const model::HostBatch& host : micro_batches) {
      const bool is_last = &host == &micro_batches.back();
      const bool reduces =
          is_last || store.options().stage >= 2 || store.options().reduce_every == parallel::ReduceEvery::micro_batch;
      const model::MicroBatch batch = upload(host, grad_scale);
      model::Stage::Saved saved;
      stage.forward(ops, batch, {}, saved);
      stage.backward(ops, batch, {}, saved, reduces ? model::Reduce::now : model::Reduce::later);
      loss += saved.loss;
    }
    store.finish_gradients();
    return loss;
  }

  Values logits(const model::HostBatch& host) { return values_of(stage.logits(ops, upload(host))); }

  Gradients gradients() const {
    Gradients gradients;
    for (const parallel::Parameter* parameter : store.parameters()) {
      gradients[parameter->name()] = values_of(parameter->grad());
    }
    return gradients;
  }

  model::ModelConfig config;
  tensor::Backend backend;
  tensor::Ops& ops;
  AloneGroups alone;
  parallel::SequencePart part;  // of every sequence, what this rank holds
  parallel::ParameterStore store;
  model::Stage stage;
  int64_t step_sequences = 1;  ///< what the losses of routers are means over

 private:
  /// Larger than a fresh model's and with no zeros, so that no term hides.
  static Values stored_values(const parallel::ParameterUnit& unit) {
    Values stored;
    for (const parallel::Parameter* parameter : unit.parameters) {
      Values values = random_values(parameter->spec().shape.numel(), tensor::hash_name(parameter->name()));
      const bool is_norm = parameter->name().ends_with("norm.weight");
      for (double& value : values) value = is_norm ? 1 + 0.2 * value : 0.3 * value;
      const Values box = stored_box(parameter->spec(), values);
      stored.insert(stored.end(), box.begin(), box.end());
    }
    return stored;
  }
};

/// What the gradient of a parameter is measured against: its norm. A bias of k moves all scores of a query alike where
/// no RoPE turns it, so that its exact gradient is 0: there, the norm of v's.
inline double gradient_error(const Gradients& computed, const Gradients& expected, const std::string& name) {
  const double error = relative_error(computed.at(name), expected.at(name));
  if (!name.ends_with(".k.bias")) return error;
  const std::string v_name = fmt::format("{}v.bias", name.substr(0, name.size() - 6));
  const auto norm = [](const Values& x) { return relative_error(x, Values(x.size(), 0.0)); };
  return error * norm(expected.at(name)) / std::max(norm(expected.at(name)), norm(expected.at(v_name)));
}

struct WorstGradient {
  std::string name;
  double error = 0;
};

inline WorstGradient worst_gradient(const Gradients& computed, const Gradients& expected) {
  WorstGradient worst;
  EXPECT_EQ(computed.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const double error = gradient_error(computed, expected, name);
    if (!(error <= worst.error)) worst = {name, error};
  }
  return worst;
}

}  // namespace tests
