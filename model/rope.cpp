#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace model {

using tensor::Dtype;
using tensor::Tensor;

namespace {

double llama3_frequency(double frequency, const RopeScaling& s) {
  const auto original = static_cast<double>(s.original_seq_len);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / s.high_freq_factor) return frequency;
  if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
  const double kept = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return frequency * (kept + (1 - kept) / s.factor);
}

/// Index, not rounded, of the pair that turns `rotations` times over the original context.
double yarn_pair(double rotations, const ModelConfig& config) {
  const auto original = static_cast<double>(config.rope_scaling.original_seq_len);
  return static_cast<double>(config.rotary_dim()) * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_theta));
}

void scale_yarn(std::vector<double>& frequencies, const ModelConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  const auto last = static_cast<double>(config.rotary_dim() - 1);
  const double low = std::clamp(std::floor(yarn_pair(s.beta_fast, config)), 0.0, last);
  double high = std::clamp(std::ceil(yarn_pair(s.beta_slow, config)), 0.0, last);
  if (high == low) high += 0.001;  // a ramp of no width: a step
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= interpolated / s.factor + (1 - interpolated);
  }
}

template <class T>
Tensor upload_table(const std::vector<double>& table, tensor::Shape shape, tensor::Device& device) {
  const std::vector<T> rounded(table.begin(), table.end());
  Tensor x = device.allocate(shape, tensor::dtype_of<T>, tensor::MemoryCategory::other);
  device.copy_from_host(rounded.data(), x);
  return x;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config) {
  const int64_t rotary_dim = config.rotary_dim();
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
  }
  const RopeScaling& scaling = config.rope_scaling;
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      break;
    case RopeScaling::Kind::linear:
      for (double& frequency : frequencies) frequency /= scaling.factor;
      break;
    case RopeScaling::Kind::llama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(frequency, scaling);
      break;
    case RopeScaling::Kind::yarn:
      scale_yarn(frequencies, config);
      break;
  }
  return frequencies;
}

double rope_attention_factor(const RopeScaling& scaling) {
  if (scaling.kind != RopeScaling::Kind::yarn) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  return scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
}

Tensor make_rope_table(const ModelConfig& config, int64_t max_positions, Dtype dtype, tensor::Device& device) {
  const std::vector<double> frequencies = rope_frequencies(config);
  const double factor = rope_attention_factor(config.rope_scaling);
  const size_t pairs = frequencies.size();
  std::vector<double> table(static_cast<size_t>(max_positions) * 2 * pairs);
  for (size_t position = 0; position < static_cast<size_t>(max_positions); ++position) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      table[position * 2 * pairs + i] = factor * std::cos(angle);
      table[position * 2 * pairs + pairs + i] = factor * std::sin(angle);
    }
  }
  const tensor::Shape shape{max_positions, config.rotary_dim()};
  return accumulator_of(dtype) == Dtype::fp64 ? upload_table<double>(table, shape, device)
                                              : upload_table<float>(table, shape, device);
}

}  // namespace model
