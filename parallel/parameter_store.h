#pragma once
/// All parameters of one rank in flat buffers, and ZeRO in one place (arXiv 1910.02054).
///
/// A unit (a block, the embedding, the head) is the grain of communication: its parameters lie back to back in one flat
/// buffer of `numel` elements, cut over the ranks of the `shard` group at whole rows. What a rank keeps of it:
///
///   zero_stage   optimizer state   gradients            values
///   0            whole             whole                whole
///   1            its cut           whole                whole
///   2            its cut           its cut              whole
///   3            its cut           its cut              its cut
///
/// "Not kept" means made when needed and freed after: a gradient buffer from the first write to its reduction, a value
/// buffer while the unit is in use. Every gradient reduction is a sum: over the shard group, then over its replicas.
///
/// Stages 2 and 3 reduce after every micro-batch, 0 and 1 once a step unless ZeroOptions says otherwise. The order of
/// the additions is the only difference: stages that reduce equally often give bitwise the same gradients.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/config.h"
#include "parallel/parameter.h"

namespace parallel {

struct ZeroOptions {
  int64_t stage = 0;
  Reshard reshard = Reshard::forward;
  ReduceEvery reduce_every = ReduceEvery::step;
};

/// The groups that hold the same parameters. Borrowed.
struct DataParallel {
  Communicator& shard;    ///< ZeRO cuts units over these ranks
  Communicator& replica;  ///< ranks that keep the same cut of units (HSDP's outer group)
};

class ParameterStore;

struct ParameterUnit {
  std::string name;
  std::vector<Parameter*> parameters;
  int64_t numel = 0;
  std::vector<int64_t> cut_sizes;  ///< elements of each rank of the shard group; they add up to numel
  Range own;                       ///< this rank's cut

  tensor::Tensor values;      ///< [numel]; ZeRO-3: absent unless in use
  tensor::Tensor own_values;  ///< [own.size()]; a view into `values` but for ZeRO-3
  tensor::Tensor grads;       ///< [numel], fp32 (fp64 where the model is): what the passes write
  tensor::Tensor grad_sums;   ///< of the elements whose optimizer state is here: in the end, the step's gradients
  tensor::Tensor own_grads;   ///< [own.size()]; a view into grad_sums

  // Reduced once a step, grad_sums is a view into `grads`. Reduced every micro-batch, it is memory of its own, and
  // `grads` exists from the first write of a micro-batch to the end of its reduction.

  tensor::Tensor& grads_to_write();  ///< `grads`, made where there are none

 private:
  friend class ParameterStore;
  ParameterStore* store_ = nullptr;
  int num_users_ = 0;
  bool has_sums_ = false;      // grad_sums holds an earlier micro-batch of this step
  tensor::Tensor incoming_;    // where a micro-batch's reduced cut arrives
  Handle gather_, reduction_;  // in flight; last, so that they end before the buffers do
};

/// Draws elements `box` of a parameter's stored box into `to` [box.size()], rounded to its dtype.
void draw_into(const Parameter& parameter, uint64_t seed, const Range& box, tensor::Tensor& to);

class ParameterStore {
 public:
  ParameterStore(const ZeroOptions& options, const DataParallel& data_parallel);
  ParameterStore(const ParameterStore&) = delete;
  ~ParameterStore();

  // ---- registration, by the model
  void begin_unit(std::string name);
  /// Registers a parameter in the current unit. The reference lives as long as the store. Names are unique.
  Parameter& add(ParameterSpec spec);

  // ---- memory, once, after everything is registered
  void allocate(tensor::Ops& ops, tensor::Dtype dtype);
  /// Draws every element from Philox by (seed, name, global element index).
  void initialize(uint64_t seed);

  // ---- values, around every use of a unit
  /// Keeps a unit's values in place while it lives.
  class Use {
   public:
    Use(ParameterStore& store, ParameterUnit& unit);
    Use(Use&& other) noexcept : store_(other.store_), unit_(std::exchange(other.unit_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(store_, other.store_);
      std::swap(unit_, other.unit_);
      return *this;
    }
    ~Use();

   private:
    ParameterStore* store_;
    ParameterUnit* unit_;
  };
  /// Waits until the values are here. The one that is likely next may be gathered ahead by prefetch().
  [[nodiscard]] Use use(ParameterUnit& unit) { return Use(*this, unit); }
  void prefetch(ParameterUnit& unit);

  // ---- gradients of one optimizer step
  void begin_step();
  /// Before the passes of a micro-batch. The last one starts the reductions that happen once a step.
  void begin_micro_batch(bool is_last);
  /// Nothing more will be added to this unit's gradients in this micro-batch.
  void gradients_complete(ParameterUnit& unit);
  /// Waits for everything; own_grads are then the step's gradients.
  void finish_gradients();
  /// After the optimizer changed own_values: every rank gets them.
  void publish_values();

  // ---- what there is
  const ZeroOptions& options() const { return options_; }
  const DataParallel& data_parallel() const { return data_parallel_; }
  std::vector<std::unique_ptr<ParameterUnit>>& units() { return units_; }
  const std::vector<std::unique_ptr<ParameterUnit>>& units() const { return units_; }
  std::vector<Parameter*> parameters() const;  ///< in order of registration
  Parameter& at(std::string_view name) const;
  /// The part of a unit whose optimizer state this rank keeps: all of it under stage 0, else its cut.
  Range optimizer_range(const ParameterUnit& unit) const;
  int64_t stored_numel() const;  ///< elements of the stored boxes, padding included
  int64_t owned_numel() const;   ///< logical elements that this rank alone counts; the model's numel summed over ranks

  /// The elements of a parameter that this rank alone counts and saves, as a range of its stored box. Every logical
  /// element is in exactly one rank's range (padding is in some, but is 0 and has no logical place).
  Range owned_range(const Parameter& parameter) const;
  /// The elements of a parameter whose optimizer state is here, as a range of its stored box.
  Range kept_range(const Parameter& parameter) const;

 private:
  friend struct ParameterUnit;
  void acquire(ParameterUnit& unit);
  void release(ParameterUnit& unit);
  void start_gather(ParameterUnit& unit);
  void finish_reduction(ParameterUnit& unit);
  void finish_reductions();
  void zero_unwritten(ParameterUnit& unit);
  bool reduces_every_micro_batch() const;
  void sum_partial_grads();
  void cut(ParameterUnit& unit) const;

  ZeroOptions options_;
  DataParallel data_parallel_;
  tensor::Ops* ops_ = nullptr;
  std::vector<std::unique_ptr<ParameterUnit>> units_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::map<std::string, Parameter*, std::less<>> by_name_;
  std::deque<ParameterUnit*> reducing_;  // oldest first; at most kMaxReducing when every micro-batch reduces
  bool is_last_micro_batch_ = true;
};

}  // namespace parallel
