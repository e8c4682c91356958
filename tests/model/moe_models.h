#pragma once
/// Models with experts: every kind of router and balance at a size that finite differences can afford.

#include "tests/model/model_configs.h"

namespace tests {

/// Softmax, weights that add up to 1, both losses, biases in experts.
inline model::ModelConfig softmax_moe() {
  model::ModelConfig config = tiny_config();
  config.moe.num_experts = 5;
  config.moe.top_k = 2;
  config.moe.ffn_hidden_size = 4;
  config.moe.aux_loss_coef = 0.7;
  config.moe.z_loss_coef = 0.3;
  return config;
}

/// Sigmoid, weights as they are, scaled, best groups of experts only, biases on the choice, a shared expert; the first
/// layer has no experts.
inline model::ModelConfig sigmoid_moe() {
  model::ModelConfig config = tiny_config();
  config.activation = tensor::Activation::relu_squared;
  config.bias = false;
  config.moe = {.num_experts = 6,
                .top_k = 3,
                .ffn_hidden_size = 3,
                .shared_ffn_hidden_size = 4,
                .router = tensor::RouterScore::sigmoid,
                .normalize_top_k = false,
                .routed_scaling = 1.7,
                .num_groups = 3,
                .top_k_groups = 2,
                .balance = model::Balance::bias,
                .z_loss_coef = 0.2,
                .layers = "after:1"};
  return config;
}

/// Sigmoid with an aux loss, and experts that take less than they are given.
inline model::ModelConfig dropping_moe() {
  model::ModelConfig config = softmax_moe();
  config.moe.router = tensor::RouterScore::sigmoid;
  config.moe.top_k = 3;
  config.moe.capacity_factor = 0.8;
  return config;
}

/// Every token takes every expert.
inline model::ModelConfig dense_moe() {
  model::ModelConfig config = softmax_moe();
  config.moe.top_k = config.moe.num_experts;
  config.moe.normalize_top_k = false;
  return config;
}

}  // namespace tests
