#pragma once
/// A parameter is one logical tensor: a name, a global shape, and how it starts. Initialisation, gradient norm,
/// optimizer, checkpoint and parameter count all work from this description; none of them knows layers.
/// Names follow published checkpoints: "layers.3.attention.q.weight".

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/ops.h"

namespace parallel {

struct Initializer {
  enum class Kind { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double std = 0;  ///< of normal
};

enum class WeightDecay { no, yes };  ///< yes for matrices; no for norms and biases

struct ParameterSpec {
  std::string name;
  tensor::Shape shape;  ///< global, unpadded
  Initializer init;
  WeightDecay weight_decay = WeightDecay::yes;
};

class Parameter {
 public:
  explicit Parameter(ParameterSpec spec) : spec_(std::move(spec)) {}

  const ParameterSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }
  const tensor::Tensor& value() const { return value_; }
  tensor::Tensor& value() { return value_; }
  tensor::Tensor& grad() { return grad_; }
  const tensor::Tensor& grad() const { return grad_; }

  /// How the next gradient joins: the first of a step overwrites (no pass that zeroes), later ones accumulate.
  tensor::Write next_grad_write() {
    return std::exchange(has_grad_, true) ? tensor::Write::accumulate : tensor::Write::overwrite;
  }

 private:
  friend class ParameterStore;
  ParameterSpec spec_;
  tensor::Tensor value_;  // views into the store's flat buffers
  tensor::Tensor grad_;
  bool has_grad_ = false;
};

/// Parameters of one unit (a block, the embedding, the head), back to back in flat buffers in order of registration.
struct ParameterUnit {
  std::string name;
  std::vector<Parameter*> parameters;
  int64_t numel = 0;
  tensor::Tensor values;  ///< [numel], the model's dtype
  tensor::Tensor grads;   ///< [numel], fp32, or fp64 where the model is
};

/// Several parameters that lie back to back, seen as one matrix (q, k, v as one product). Values and gradients.
struct FusedParameter {
  std::vector<Parameter*> parts;  ///< empty: absent
  tensor::Tensor value() const;   ///< [sum of dim 0, ...]
  tensor::Tensor grad() const;
  tensor::Write next_grad_write() const;  ///< asks every part, which must agree
};

class ParameterStore {
 public:
  ParameterStore() = default;
  ParameterStore(const ParameterStore&) = delete;

  void begin_unit(std::string name);
  /// Registers a parameter in the current unit. The reference lives as long as the store. Names are unique.
  Parameter& add(ParameterSpec spec);

  /// Lays out and allocates the flat buffers. Once, after the model has registered everything.
  void allocate(tensor::Device& device, tensor::Dtype dtype);
  /// Draws every element from Philox by (seed, name, global element index): no layout changes a weight.
  void initialize(uint64_t seed);
  /// The next gradient of every parameter overwrites.
  void forget_gradients();
  /// Gradients that nothing wrote this step become 0.
  void zero_unwritten_gradients();

  std::vector<ParameterUnit>& units() { return units_; }
  const std::vector<ParameterUnit>& units() const { return units_; }
  std::vector<Parameter*> parameters() const;  ///< in order of registration
  Parameter& at(std::string_view name) const;
  int64_t numel() const;

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::map<std::string, Parameter*, std::less<>> by_name_;
  std::vector<ParameterUnit> units_;
};

/// Writes the initial values of `spec` for elements [begin, begin + values.size()) of its global row-major order.
void draw_initial_values(const ParameterSpec& spec, uint64_t seed, int64_t begin, double* values, int64_t count);

}  // namespace parallel
