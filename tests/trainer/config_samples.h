#pragma once
/// A config that is right, and ways to break it.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "trainer/config_reader.h"

namespace trainer {

inline const std::string kValidConfig = R"([run]
name = "test"
seed = 7

[model]
vocab_size = 256
num_layers = 2
hidden_size = 64
num_heads = 4
num_kv_heads = 2
seq_len = 32
norm = "rms_norm"
activation = "swiglu"
position = "rope"
rope_theta = 10000
bias = false
dropout = 0.1

[parallel]
tp = 1
dp = "auto"

[train]
steps = 100
global_batch_size = 8
micro_batch_size = 4
max_grad_norm = 1
eval_every = 50

[precision]
compute = "fp32"

[optimizer]
name = "adamw"
lr = 3e-4
beta2 = 0.95

[lr_schedule]
kind = "cosine"
warmup_steps = 10
min_lr = 3e-5

[data]
train = ["a.bin", "b.bin"]
valid = "c.bin"

[checkpoint]
every_steps = 20
resume = "none"

[log]
every_steps = 1

[cluster]
peak_tflops = 1.5
)";

inline int64_t line_at(const std::string& text, size_t offset) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
}

/// kValidConfig with a part replaced.
inline std::string broken(const std::string& part, const std::string& by) {
  std::string text = kValidConfig;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  if (at == std::string::npos) return text;
  return text.replace(at, part.size(), by);
}

/// The error that a config gives.
struct Refusal {
  std::string message;
  tensor::ExitCode code = tensor::ExitCode::finished;
};

inline Refusal refusal_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(text, "test.toml", overrides);
  } catch (const tensor::Error& error) {
    return {error.what(), error.code()};
  }
  return {"(accepted)", tensor::ExitCode::finished};
}

}  // namespace trainer
