/// Pipelines of the launched ranks against one rank: every schedule, with what it is combined with.

#include "parallel/schedule.h"
#include "tests/support/tensors.h"
#include "tests/trainer/ranks/learner_fixture.h"

namespace tests {

using tensor::Dtype;

class PipelineRanks : public LearnerRanksTest {
 protected:
  /// With enough micro-batches for every schedule on these ranks.
  Settings pipeline(const std::string& schedule) const {
    return {fmt::format("parallel.pp={}", size()), "parallel.schedule=" + schedule, "train.micro_batch_size=1",
            "train.steps=3"};
  }
  void expect_equal_to_one_rank(const Settings& settings) {
    Config on_ranks = config(settings + Settings{"precision.compute=fp64"});
    auto backend = tensor::make_cpu_backend({.num_threads = 1});
    const trainer::RankContext context(on_ranks, rank(), size(), factory_, {.ledger = ledger_});
    const auto source = trainer::make_synthetic_source(on_ranks);
    const auto options = trainer::default_verify_options(Dtype::fp64);
    const auto differences = trainer::verify(on_ranks, backend, context, *source, options);
    for (const trainer::WorstDifference& d : differences) {
      EXPECT_TRUE(d.passes()) << describe(settings) << trainer::format(differences);
    }
  }
  static std::vector<double> losses(LearnerOnRanks& run, int64_t num_steps) {
    std::vector<double> losses;
    for (int64_t step = 1; step <= num_steps; ++step) {
      const StepResult result = run.train(step);
      losses.push_back(result.loss.mean());
      losses.push_back(result.grad_norm);
    }
    losses.push_back(run.evaluate(1));
    return losses;
  }
};

TEST_F(PipelineRanks, EqualOneRankUnderEverySchedule) {
  for (const std::string& schedule : parallel::schedule_names()) {
    expect_equal_to_one_rank(pipeline(schedule));
    expect_equal_to_one_rank(pipeline(schedule) + Settings{"model.tie_embeddings=false", "model.num_layers=5"});
  }
}

TEST_F(PipelineRanks, EqualOneRankUnderEveryZeroStage) {
  for (const std::string schedule : {"1f1b", "interleaved", "bfs", "zb_v"}) {
    for (const Settings& stage : stages()) {
      const Settings half = {fmt::format("parallel.pp={}", (size() + 1) / 2)};
      expect_equal_to_one_rank(pipeline(schedule) + half + stage);
      expect_equal_to_one_rank(pipeline(schedule) + half + stage + Settings{"parallel.zero_reshard=stage"});
    }
  }
}

TEST_F(PipelineRanks, EqualOneRankWithUnevenAndEmptyStages) {
  for (const char* layers : {"model.num_layers=1", "model.num_layers=3", "model.num_layers=7"}) {
    for (const std::string schedule : {"1f1b", "interleaved", "zb_h1", "dualpipe_v"}) {
      expect_equal_to_one_rank(pipeline(schedule) + Settings{layers});
    }
  }
}

TEST_F(PipelineRanks, EqualOneRankForFewerMicroBatchesThanRanks) {
  for (const char* schedule : {"gpipe", "1f1b", "bfs", "zb_h1", "zb_v"}) {
    expect_equal_to_one_rank(pipeline(schedule) + Settings{"train.micro_batch_size=4"});
    expect_equal_to_one_rank(pipeline(schedule) + Settings{"train.micro_batch_size=8"});
  }
}

/// Micro-batches in ascending order on every stage; a tied table on two ranks is added up in another order.
TEST_F(PipelineRanks, HaveTheBitsOfOneRank) {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "interleaved_zb", "zb_v"}) {
    const Settings common = {"model.tie_embeddings=false", "model.num_layers=5", "train.micro_batch_size=1"};
    const auto run = make(common + pipeline(schedule));
    const auto alone = make_alone(common);

    EXPECT_EQ(losses(*run, 20), losses(*alone, 20)) << schedule;
  }
}

TEST_F(PipelineRanks, HaveTheBitsOfOneRankInBreadthFirstOrder) {
  const Settings common = {"model.tie_embeddings=false", "train.micro_batch_size=1", "parallel.schedule=bfs"};
  const auto run = make(common + Settings{fmt::format("parallel.pp={}", size()), "parallel.virtual_stages=1"});
  const auto alone = make_alone(common + Settings{"parallel.virtual_stages=1"});

  EXPECT_EQ(losses(*run, 20), losses(*alone, 20));
}

TEST_F(PipelineRanks, HoldEveryWeightOnce) {
  for (const char* tied : {"model.tie_embeddings=true", "model.tie_embeddings=false"}) {
    const auto run = make(pipeline("1f1b") + Settings{tied});

    EXPECT_NO_THROW(run->learner().check_parameter_count());
  }
}

TEST_F(PipelineRanks, KeepTheCopiesOfATiedTableEqual) {
  const auto run = make(pipeline("1f1b") + Settings{"train.max_grad_norm=0.1"});
  for (int64_t step = 1; step <= 3; ++step) run->train(step);

  parallel::Communicator& tied = run->context().tied();
  double sum = 0, square = 0;
  if (tied.size() > 1) {
    for (const double x : values_of(run->store().at("embedding.token.weight").value())) square += x * x;
    sum = trainer::all_reduce_scalar(tied, run->learner().ops().device(), square, parallel::Reduction::sum);
    EXPECT_EQ(sum, 2 * square);
    EXPECT_GT(square, 0);
  }
  EXPECT_EQ(tied.size() > 1, size() > 1 && (rank() == 0 || rank() == size() - 1));
}

}  // namespace tests
