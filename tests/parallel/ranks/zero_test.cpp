/// The store under every ZeRO stage: sums are exact (small whole numbers), so every stage must give the same ones.

#include <gmock/gmock.h>

#include "parallel/parameter_store.h"
#include "tests/parallel/ranks/rank_fixture.h"
#include "tests/support/tensors.h"

namespace tests {

using parallel::Collective;
using parallel::Group;
using parallel::ParameterStore;
using parallel::ParameterUnit;
using parallel::ReduceEvery;
using parallel::Reshard;
using parallel::ZeroOptions;
using tensor::Dtype;
using tensor::MemoryCategory;

namespace {

constexpr int64_t kMicroBatches = 3;

/// Gradient of one micro-batch of one data-parallel rank.
double gradient(int rank, int64_t micro_batch, int64_t index) {
  return element(rank, index) + static_cast<double>(micro_batch);
}

int64_t pool_bytes(int64_t numel) {
  const int64_t grain = tensor::Pool::kAlignment, bytes = std::max<int64_t>(1, numel * 4);
  return (bytes + grain - 1) / grain * grain;
}

}  // namespace

class ZeroStore : public RankTest, public testing::WithParamInterface<ZeroOptions> {
 protected:
  /// A store over all ranks, dp_out of them apart.
  struct Sharded {
    Sharded(const ZeroOptions& options, int size, int dp_out, int rank, parallel::CommunicatorFactory& factory)
        : mesh({.dp_in = size / dp_out, .dp_out = dp_out}),
          groups(mesh, rank, factory),
          store(options, {groups.at(Group::zero), groups.at(Group::dp_out)}) {}
    parallel::Mesh mesh;
    parallel::MeshCommunicators groups;
    ParameterStore store;
  };

  std::unique_ptr<Sharded> make_store(int dp_out) {
    auto made = std::make_unique<Sharded>(GetParam(), size(), dp_out, rank(), factory_);
    ParameterStore& store = made->store;
    const auto add = [&](const std::string& name, const tensor::Shape& shape) {
      store.add({.name = name, .shape = shape, .init = {parallel::Initializer::Kind::normal, 0.02}});
    };
    store.begin_unit("first");
    add("matrix", {7, 5});
    add("written once", {5});
    store.begin_unit("second");
    add("other", {9, 4});
    store.begin_unit("smaller than the group");
    add("scalar", {1});
    store.allocate(*backend_.ops, Dtype::fp32);
    return made;
  }
  std::vector<int> dp_outs() const { return size() % 2 == 0 ? std::vector{1, 2} : std::vector{1}; }

  void write(parallel::Parameter& parameter, int64_t micro_batch) {
    const bool adds = parameter.next_grad_write() == tensor::Write::accumulate;
    tensor::Tensor grad = parameter.grad();
    Values values = adds ? values_of(grad) : Values(static_cast<size_t>(grad.numel()), 0.0);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += gradient(rank(), micro_batch, parameter.offset() + static_cast<int64_t>(i));
    }
    fill(grad, values);
  }
  void run_micro_batch(ParameterStore& store, int64_t micro_batch) {
    for (const auto& unit : store.units()) const ParameterStore::Use forward = store.use(*unit);
    for (size_t i = store.units().size(); i-- > 0;) {
      ParameterUnit& unit = *store.units()[i];
      {
        const ParameterStore::Use backward = store.use(unit, ParameterStore::Use::Kind::last);
        for (parallel::Parameter* parameter : unit.parameters) {
          if (parameter->name() != "written once" || micro_batch == 0) write(*parameter, micro_batch);
        }
      }
      const bool reduces_often = GetParam().stage >= 2 || GetParam().reduce_every == parallel::ReduceEvery::micro_batch;
      if (reduces_often || micro_batch + 1 == kMicroBatches) store.reduce_gradients(unit);
    }
  }
  void run_step(ParameterStore& store) {
    store.begin_step();
    for (int64_t micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) run_micro_batch(store, micro_batch);
    store.finish_gradients();
  }
  double summed(const std::string& name, int64_t index) const {
    double sum = 0;
    for (int64_t micro_batch = 0; micro_batch < (name == "written once" ? 1 : kMicroBatches); ++micro_batch) {
      for (int r = 0; r < size(); ++r) sum += gradient(r, micro_batch, index);
    }
    return sum;
  }
  void expect_sums(const ParameterStore& store) const {
    for (const auto& unit : store.units()) {
      for (const parallel::Parameter* parameter : unit->parameters) {
        const parallel::Range kept = store.kept_range(*parameter);
        const int64_t first = parameter->offset() - store.optimizer_range(*unit).begin;
        for (int64_t i = kept.begin; i < kept.end; ++i) {
          EXPECT_EQ(unit->grad_sums.data<float>()[first + i], summed(parameter->name(), parameter->offset() + i))
              << parameter->name() << " " << i;
        }
      }
    }
  }
  /// Every rank changes what it keeps of the optimizer's state, then looks at what all have.
  void expect_published(ParameterStore& store, double start) {
    for (const auto& unit : store.units()) {
      const parallel::Range range = store.optimizer_range(*unit);
      tensor::Tensor& values = GetParam().stage == 0 ? unit->values : unit->own_values;
      for (int64_t i = 0; i < range.size(); ++i) {
        values.data<float>()[i] = static_cast<float>(start) + static_cast<float>(range.begin + i);
      }
    }
    store.publish_values();
    for (const auto& unit : store.units()) {
      const ParameterStore::Use in_use = store.use(*unit);
      expect_elements<float>(
          unit->values, [&](int64_t i) { return start + static_cast<double>(i); }, "value");
    }
  }
};

TEST_P(ZeroStore, SumsTheGradientsOfAllRanksAndMicroBatches) {
  for (const int dp_out : dp_outs()) {
    SCOPED_TRACE(dp_out);
    const auto sharded = make_store(dp_out);
    for (int step = 0; step < 2; ++step) {
      run_step(sharded->store);
      expect_sums(sharded->store);
      expect_published(sharded->store, 100.0 * step);
    }
  }
}

TEST_P(ZeroStore, CutsUnitsAtWholeRows) {
  const auto sharded = make_store(1);
  for (const auto& unit : sharded->store.units()) {
    int64_t bound = 0;
    for (const int64_t part : unit->cut_sizes) {
      EXPECT_GE(part, 0);
      for (const parallel::Parameter* parameter : unit->parameters) {
        const int64_t inside = bound - parameter->offset();
        const bool is_inside = inside >= 0 && inside < parameter->stored_numel();
        if (!is_inside) continue;
        EXPECT_EQ(inside % parameter->spec().shape.row_numel(), 0) << unit->name << " at " << bound;
      }
      bound += part;
    }
    EXPECT_EQ(bound, unit->numel);
    EXPECT_EQ(std::ssize(unit->cut_sizes), size());
  }
}

TEST_P(ZeroStore, CountsEveryElementOnOneRank) {
  for (const int dp_out : dp_outs()) {
    const auto sharded = make_store(dp_out);
    auto count = RankTest::make<int64_t>({1}, [&](int64_t) { return sharded->store.owned_numel(); });
    sharded->groups.at(Group::world).all_reduce(count, parallel::Reduction::sum).wait();

    EXPECT_EQ(count.data<int64_t>()[0], 7 * 5 + 5 + 9 * 4 + 1) << dp_out;
    EXPECT_EQ(sharded->store.stored_numel(), 7 * 5 + 5 + 9 * 4 + 1);
  }
}

/// fp32; what is kept between steps, to the byte. The pool rounds each buffer up to a cache line.
TEST_P(ZeroStore, KeepsWhatItsStageSays) {
  const ZeroOptions options = GetParam();
  const auto sharded = make_store(1);
  run_step(sharded->store);
  sharded->store.publish_values();
  int64_t whole = 0, own = 0;
  for (const auto& unit : sharded->store.units()) {
    whole += pool_bytes(unit->numel);
    own += pool_bytes(unit->own.size());
  }
  const auto live = [&](MemoryCategory category) { return backend_.device->pool().use(category).live_bytes; };

  const bool keeps_all_gradients =
      options.stage == 0 || (options.stage == 1 && options.reduce_every == ReduceEvery::step);
  EXPECT_EQ(live(MemoryCategory::gradients), keeps_all_gradients ? whole : own);
  EXPECT_EQ(live(MemoryCategory::parameters), options.stage < 3 ? whole : own);
}

/// n elements over the group: what each stage moves in a step, in calls of one unit each.
TEST_P(ZeroStore, MovesWhatItsStageSays) {
  const ZeroOptions options = GetParam();
  for (const int dp_out : dp_outs()) {
    const auto sharded = make_store(dp_out);
    ledger_.end_step();
    run_step(sharded->store);
    sharded->store.publish_values();

    parallel::Bill expected;
    const auto add = [&](Group group, Collective op, int64_t count, int64_t calls) {
      const bool talks = sharded->groups.at(group).size() > 1;
      if (talks) parallel::add_to_bill(expected, {to_string(group), op, Dtype::fp32}, count, calls);
    };
    const int64_t reductions =
        options.stage >= 2 || options.reduce_every == ReduceEvery::micro_batch ? kMicroBatches : 1;
    const int64_t gathers = options.reshard == Reshard::forward ? 2 * kMicroBatches : kMicroBatches;
    for (const auto& unit : sharded->store.units()) {
      const auto reduction = options.stage == 0 ? Collective::all_reduce : Collective::reduce_scatter;
      add(Group::zero, reduction, unit->numel, reductions);
      if (options.stage > 0) add(Group::zero, Collective::all_gather, unit->numel, options.stage == 3 ? gathers : 1);
      add(Group::dp_out, Collective::all_reduce, unit->grad_sums.numel(), 1);
    }

    EXPECT_EQ(ledger_.step(), expected) << format_bill(ledger_.step()) << format_bill(expected);
  }
}

TEST_P(ZeroStore, StartsWithTheValuesOfOneRank) {
  const auto sharded = make_store(1);
  sharded->store.initialize(5);

  for (const auto& unit : sharded->store.units()) {
    const ParameterStore::Use in_use = sharded->store.use(*unit);
    for (const parallel::Parameter* parameter : unit->parameters) {
      Values drawn(static_cast<size_t>(parameter->stored_numel()));
      parallel::draw_initial_values(parameter->spec(), 5, 0, drawn.data(), std::ssize(drawn));
      for (double& value : drawn) value = static_cast<float>(value);
      EXPECT_EQ(values_of(parameter->value()), drawn) << parameter->name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroStore,
                         testing::Values(ZeroOptions{0}, ZeroOptions{1}, ZeroOptions{2},
                                         ZeroOptions{3, Reshard::forward}, ZeroOptions{3, Reshard::never},
                                         ZeroOptions{0, Reshard::forward, ReduceEvery::micro_batch},
                                         ZeroOptions{1, Reshard::forward, ReduceEvery::micro_batch}),
                         [](const auto& drawn) {
                           const bool often = drawn.param.reduce_every == ReduceEvery::micro_batch;
                           return std::to_string(drawn.param.stage) +
                                  (drawn.param.reshard == Reshard::never ? "_never_reshards" : "") +
                                  (often ? "_reduces_every_micro_batch" : "");
                         });

}  // namespace tests
