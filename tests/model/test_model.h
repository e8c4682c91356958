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

/// Sequences [first, first + count) of a batch.
inline model::HostBatch sequences_of(const model::HostBatch& batch, int64_t first, int64_t count) {
  const int64_t seq_len = std::ssize(batch.tokens) / batch.num_sequences;
  const auto part = [&]<class T>(const std::vector<T>& whole) {
    return std::vector<T>(whole.begin() + first * seq_len, whole.begin() + (first + count) * seq_len);
  };
  return {.num_sequences = count,
          .tokens = part(batch.tokens),
          .targets = part(batch.targets),
          .positions = part(batch.positions),
          .document_start = part(batch.document_start),
          .token_index = part(batch.token_index)};
}

class TestModel {
 public:
  TestModel(const model::ModelConfig& model_config, tensor::Dtype dtype, const model::StageOptions& options = {},
            int num_threads = 2)
      : config(model_config),
        backend(tensor::make_cpu_backend({.num_threads = num_threads})),
        ops(*backend.ops),
        stage(config, model::whole_model(config), options, store) {
    store.allocate(*backend.device, dtype);
    stage.prepare(*backend.device, dtype);
    // Larger than a fresh model's and with no zeros, so that no term hides.
    for (parallel::Parameter* parameter : store.parameters()) {
      Values values = random_values(parameter->value().numel(), tensor::hash_name(parameter->name()));
      const bool is_norm = parameter->name().ends_with("norm.weight");
      for (double& value : values) value = is_norm ? 1 + 0.2 * value : 0.3 * value;
      fill(parameter->value(), values);
    }
  }

  model::MicroBatch upload(const model::HostBatch& host, double grad_scale = 1) {
    model::MicroBatch batch = model::to_device(host, config.sliding_window, *backend.device);
    batch.grad_scale = grad_scale;
    batch.step = 3;
    return batch;
  }

  /// Forward and backward of one step's micro-batches; returns the sum of token losses. Gradients: of their mean.
  double run_step(const std::vector<model::HostBatch>& micro_batches) {
    double num_valid = 0, loss = 0;
    for (const model::HostBatch& host : micro_batches) num_valid += num_valid_targets(host);
    store.forget_gradients();
    for (const model::HostBatch& host : micro_batches) {
      const model::MicroBatch batch = upload(host, 1 / num_valid);
      model::Stage::Saved saved;
      stage.forward(ops, batch, {}, saved);
      stage.backward(ops, batch, {}, saved);
      loss += saved.loss;
    }
    store.zero_unwritten_gradients();
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
  parallel::ParameterStore store;
  model::Stage stage;
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
