#pragma once
/// A parameter is one logical tensor: a name, a global shape, how it starts, and which box of it this rank holds.
/// Initialisation, gradient norm, ZeRO, optimizer, checkpoint and parameter count all work from this description; none
/// of them knows layers. Names follow published checkpoints: "layers.3.attention.q.weight".

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/communicator.h"
#include "tensor/ops.h"

namespace parallel {

struct Initializer {
  enum class Kind { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double std = 0;  ///< of normal
};

enum class WeightDecay { no, yes };  ///< yes for matrices; no for norms and biases

/// What a step does to a parameter. gradient: the optimizer's update. balance: no gradient exists; where others have
/// it, the passes count tokens (of a router's experts), which are summed as gradients are, and the value moves by them.
/// It has no part in the gradient's norm.
enum class Update { gradient, balance };

/// Of Update::balance: value += rate * sign(share * the step's tokens - count). Arithmetic of arXiv 2408.15664.
struct TokenBalance {
  double rate = 0;
  double share = 0;  ///< counts that a token adds, over all elements alike
};

/// Elements [begin, end) of something flat.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Indices [begin, end) of one dim, stored in `stored` >= end - begin places: what tensor parallelism leaves of a
/// parameter on this rank. Places past the end are padding: always 0, on no other rank, in no checkpoint.
struct Slice {
  int dim = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stored = 0;
};

/// Part `rank` of `size` equal parts of `extent` indices, padded where `size` does not divide it.
Slice equal_slice(int dim, int64_t extent, int rank, int size);

struct ParameterSpec {
  std::string name;
  tensor::Shape shape;  ///< global, unpadded
  Initializer init;
  WeightDecay weight_decay = WeightDecay::yes;
  std::optional<Slice> slice{};  ///< absent: the whole tensor is here
  Update update = Update::gradient;
  TokenBalance balance{};

  /// Ranks of the tensor-parallel group may hold the same box; one of them counts and saves it.
  bool is_primary = true;
  /// The gradient on this rank is a part of a sum over this group (a norm that sees a part of the tokens). Null: whole.
  Communicator* partial_grad = nullptr;
  /// Another pipeline stage holds the same parameter (tied embeddings): each finds a part of its gradient. Null: none.
  Communicator* shared_with = nullptr;

  tensor::Shape stored_shape() const { return slice ? shape.with(slice->dim, slice->stored) : shape; }
};

struct ParameterUnit;

class Parameter {
 public:
  Parameter(ParameterSpec spec, ParameterUnit& unit, int64_t offset)
      : spec_(std::move(spec)), unit_(&unit), offset_(offset) {}

  const ParameterSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }
  ParameterUnit& unit() const { return *unit_; }
  int64_t offset() const { return offset_; }  ///< of its first element in the unit's flat buffers
  int64_t stored_numel() const { return spec_.stored_shape().numel(); }

  /// Views of the stored box. Under ZeRO-3 the value exists only while the unit is in use.
  tensor::Tensor value() const;
  tensor::Tensor grad() const;

  /// How the next gradient joins: the first of an accumulation overwrites (no pass that zeroes), later ones add.
  tensor::Write next_grad_write() {
    return std::exchange(has_grad_, true) ? tensor::Write::accumulate : tensor::Write::overwrite;
  }

 private:
  friend class ParameterStore;
  ParameterSpec spec_;
  ParameterUnit* unit_;
  int64_t offset_;
  bool has_grad_ = false;
};

/// Several parameters that lie back to back, seen as one matrix (q, k, v as one product). Values and gradients.
struct FusedParameter {
  std::vector<Parameter*> parts;  ///< empty: absent
  tensor::Tensor value() const;   ///< [sum of dim 0, ...]
  tensor::Tensor grad() const;
  tensor::Write next_grad_write() const;  ///< asks every part, which must agree
};

/// Writes the initial values of elements [begin, begin + count) of `spec`'s global row-major order: Philox by (seed,
/// name, global element index), so that no layout changes a weight.
void draw_initial_values(const ParameterSpec& spec, uint64_t seed, int64_t begin, double* values, int64_t count);

/// Initial values of elements `range` of the stored box, row-major; padding is 0.
std::vector<double> draw_stored_values(const ParameterSpec& spec, uint64_t seed, const Range& range);

/// Elements that lie back to back both in the stored box and in the global tensor.
struct StoredRun {
  int64_t stored_begin = 0;
  int64_t global_begin = 0;
  int64_t count = 0;
};
/// Where elements `range` of the stored box belong in the global tensor, row-major; padding is left out.
std::vector<StoredRun> logical_runs(const ParameterSpec& spec, const Range& range);

}  // namespace parallel
