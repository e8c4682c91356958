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
/// Stages 2 and 3 reduce many times a step, 0 and 1 once unless ZeroOptions says otherwise; after which passes is the
/// schedule's to say. The order of the additions is the only difference: stages that reduce equally often give bitwise
/// the same gradients. A unit's gradients may travel in several buckets, whose size changes no bit.

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
  int64_t bucket_bytes = 0;  ///< most that one gradient reduction moves; 0: a whole unit
};

/// The groups that hold the same parameters. Borrowed.
struct DataParallel {
  Communicator& shard;    ///< ZeRO cuts units over these ranks
  Communicator& replica;  ///< ranks that keep the same cut of units (HSDP's outer group)
};

class ParameterStore;

struct ParameterUnit {
  ParameterUnit(std::string unit_name, const DataParallel& data_parallel)
      : name(std::move(unit_name)), groups(data_parallel) {}

  std::string name;
  DataParallel groups;  ///< that hold it: experts are on fewer ranks than the rest
  std::vector<Parameter*> parameters;
  int64_t numel = 0;
  std::vector<int64_t> cut_sizes;  ///< elements of each rank of the shard group; they add up to numel
  Range own;                       ///< this rank's cut

  tensor::Tensor values;      ///< [numel]; ZeRO-3: absent unless in use
  tensor::Tensor own_values;  ///< [own.size()]; a view into `values` but for ZeRO-3
  tensor::Tensor grads;       ///< [numel], fp32 (fp64 where the model is): what the passes write
  tensor::Tensor grad_sums;   ///< of the elements whose optimizer state is here: in the end, the step's gradients
  tensor::Tensor own_grads;   ///< [own.size()]; a view into grad_sums

  // Reduced once a step, grad_sums is a view into `grads`. Reduced more often, it is memory of its own, and `grads`
  // exists from the first write to the end of the next reduction.

  tensor::Tensor& grads_to_write();  ///< `grads`, made where there are none

 private:
  friend class ParameterStore;
  ParameterStore* store_ = nullptr;
  int num_users_ = 0;
  bool has_sums_ = false;  // grad_sums holds an earlier reduction of this step
  bool is_reducing_ = false;
  tensor::Tensor incoming_;  // where a reduced cut arrives that joins earlier ones
  Handle gather_;            // in flight; last, so that they end before the buffers do
  std::vector<Handle> reductions_;
};

/// Draws elements `box` of a parameter's stored box into `to` [box.size()], rounded to its dtype.
void draw_into(const Parameter& parameter, uint64_t seed, const Range& box, tensor::Tensor& to);

class ParameterStore {
 public:
  ParameterStore(const ZeroOptions& options, const DataParallel& data_parallel);
  ParameterStore(const ParameterStore&) = delete;
  ~ParameterStore();

  // ---- registration, by the model
  void begin_unit(std::string name) { begin_unit(std::move(name), data_parallel_); }
  /// Of parameters that are held by other ranks than the rest of the model.
  void begin_unit(std::string name, const DataParallel& groups);
  /// Registers a parameter in the current unit. The reference lives as long as the store. Names are unique.
  Parameter& add(ParameterSpec spec);

  // ---- memory, once, after everything is registered
  void allocate(tensor::Ops& ops, tensor::Dtype dtype);
  /// Draws every element from Philox by (seed, name, global element index).
  void initialize(uint64_t seed);

  // ---- values, around every use of a unit
  /// Keeps a unit's values in place while it lives. What Reshard::never keeps after, a last use gives back.
  class Use {
   public:
    enum class Kind { repeated, last };
    Use(ParameterStore& store, ParameterUnit& unit, Kind kind);
    Use(Use&& other) noexcept : store_(other.store_), unit_(std::exchange(other.unit_, nullptr)), kind_(other.kind_) {}
    Use& operator=(Use&&) = delete;
    ~Use();

   private:
    ParameterStore* store_;
    ParameterUnit* unit_;
    Kind kind_;
  };
  /// Waits until the values are here. The one that is likely next may be gathered ahead by prefetch().
  [[nodiscard]] Use use(ParameterUnit& unit, Use::Kind kind = Use::Kind::repeated);
  void prefetch(ParameterUnit& unit);
  /// Starts a gather that the first use waits for, and keeps the values until then and after.
  [[nodiscard]] Use hold(ParameterUnit& unit);

  // ---- gradients of one optimizer step
  void begin_step();
  /// Starts to sum what was added to this unit's gradients since its last reduction. Where a step has one reduction,
  /// nothing is added after it.
  void reduce_gradients(ParameterUnit& unit);
  /// Waits for all reductions; own_grads are then the step's gradients, but for parameters shared with other stages.
  void finish_gradients();
  /// Sums the gradients that the ranks of `group` hold parts of (ParameterSpec::partial_grad, shared_with), in one
  /// message.
  void sum_over(Communicator& group);
  /// After the optimizer changed own_values: every rank gets them.
  void publish_values();

  // ---- what there is
  const ZeroOptions& options() const { return options_; }
  const DataParallel& data_parallel() const { return data_parallel_; }
  std::vector<std::unique_ptr<ParameterUnit>>& units() { return units_; }
  const std::vector<std::unique_ptr<ParameterUnit>>& units() const { return units_; }
  std::vector<Parameter*> parameters() const;  ///< in order of registration
  Parameter& at(std::string_view name) const;
  Parameter* find(std::string_view name) const;  ///< null: not on this rank
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
  void release(ParameterUnit& unit, Use::Kind kind);
  void start_gather(ParameterUnit& unit);
  void start_all_reduce(ParameterUnit& unit);
  void start_reduce_scatter(ParameterUnit& unit, const tensor::Tensor& own);
  std::vector<Range> buckets(const ParameterUnit& unit) const;
  void finish_reduction(ParameterUnit& unit);
  void finish_reductions();
  void zero_unwritten(ParameterUnit& unit);
  bool reduces_often() const;
  bool is_written(const ParameterUnit& unit) const;
  std::vector<tensor::Tensor> partial_grads(const Communicator& group) const;
  void cut(ParameterUnit& unit) const;

  ZeroOptions options_;
  DataParallel data_parallel_;
  tensor::Ops* ops_ = nullptr;
  std::vector<std::unique_ptr<ParameterUnit>> units_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::map<std::string, Parameter*, std::less<>> by_name_;
  std::deque<ParameterUnit*> reducing_;  // oldest first; at most kMaxReducing where a step reduces often
};

}  // namespace parallel
