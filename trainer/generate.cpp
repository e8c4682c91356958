#include "trainer/generate.h"

#include <numeric>

namespace trainer {

using tensor::Dtype;
using tensor::Tensor;

namespace {

model::HostBatch host_batch(std::span<const int32_t> tokens, int64_t first_position) {
  model::HostBatch host{.num_sequences = 1,
                        .tokens = {tokens.begin(), tokens.end()},
                        .targets = std::vector<int32_t>(tokens.size(), -1),
                        .positions = std::vector<int32_t>(tokens.size()),
                        .document_start = std::vector<int32_t>(tokens.size(), 0),
                        .token_index = std::vector<int64_t>(tokens.size())};
  std::iota(host.positions.begin(), host.positions.end(), static_cast<int32_t>(first_position));
  std::iota(host.token_index.begin(), host.token_index.end(), first_position);
  return host;
}

template <class T>
std::vector<double> download_as(const Tensor& x) {
  std::vector<T> host(static_cast<size_t>(x.numel()));
  x.device().copy_to_host(x, host.data());
  return {host.begin(), host.end()};
}

}  // namespace

Generator::Generator(const model::ModelConfig& config, const model::Pipeline& pipeline, tensor::Ops& ops, Dtype dtype)
    : config_(config),
      pipeline_(pipeline),
      ops_(ops),
      dtype_(dtype),
      cache_(pipeline.make_cache(config.seq_len, dtype, ops.device())) {}

void Generator::run(std::vector<int32_t> text, int64_t num_tokens, const SamplingOptions& options,
                    const std::function<void(int32_t)>& emit) {
  CHECK(!text.empty(), "a prompt has at least one token");
  cache_.restart();
  size_t num_cached = 0;  // the last tokens of `text` that the cache has seen
  if (std::ssize(text) > config_.seq_len) text.erase(text.begin(), text.end() - config_.seq_len);
  for (int64_t index = 0; index < num_tokens; ++index) {
    if (std::ssize(text) > config_.seq_len) {
      text.erase(text.begin(), text.end() - (config_.seq_len + 1) / 2);
      cache_.restart();
      num_cached = 0;
    }
    const std::vector<double> logits = next_logits(std::span<const int32_t>(text).subspan(num_cached));
    num_cached = text.size();
    text.push_back(sample_token(logits, options, index));
    emit(text.back());
  }
}

std::vector<double> Generator::next_logits(std::span<const int32_t> new_tokens) {
  const model::HostBatch host = host_batch(new_tokens, cache_.length());
  const model::MicroBatch batch = to_device(host, config_.sliding_window, {}, ops_.device());
  const Tensor logits = pipeline_.decode(ops_, batch, cache_);
  return logits.dtype() == Dtype::fp64 ? download_as<double>(logits) : download_as<float>(logits);
}

}  // namespace trainer
