/// The loss of 30 steps as it was when the golden file was written. A change of any number of a run (initial weights,
/// data order, dropout, schedule, optimizer, model) shows here first; such a change breaks the resuming of runs and is
/// never an accident. After a deliberate one:
///
///   TRAINER_WRITE_GOLDENS=1 build/release/bin/trainer_test --gtest_filter='*GoldenCurve*Fp64*'
///
/// The files were written in fp64. fp32 and bf16 must follow the same curve as closely as they can.

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/support/tolerance.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

using tensor::Dtype;

constexpr int64_t kSteps = 30;

struct Curve {
  std::string model;
  std::vector<std::string> overrides;
  Dtype dtype;
};
void PrintTo(const Curve& curve, std::ostream* out) { *out << curve.model << " " << tensor::to_string(curve.dtype); }

/// Relative, of losses and norms. fp64: 30 steps of sums of some hundred terms, in any order, on any CPU. Each step
/// hands its rounding on to the next; 64 unit roundings a step is what a sum of 4,000 terms may give. bf16: weights and
/// activations are rounded once per operation, some 30 of them in a row, errors averaging out; its gradient norm
/// follows no closer than a tenth.
double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return 1e-10;
    case Dtype::bf16:
      return tests::epsilon(Dtype::bf16) * 4;
    default:
      return tests::epsilon(Dtype::fp32) * 64 * kSteps;
  }
}

class GoldenCurve : public testing::TestWithParam<Curve> {
 protected:
  nlohmann::json train() const {
    std::vector<std::string> overrides = GetParam().overrides;
    overrides.insert(overrides.end(), {fmt::format("precision.compute={}", tensor::to_string(GetParam().dtype)),
                                       fmt::format("train.steps={}", kSteps), "train.eval_every=10"});
    train_here(data_.config(dir_, overrides));
    nlohmann::json curve;
    for (const std::string& line : trajectory(dir_)) {
      const auto step = nlohmann::json::parse(line);
      for (const char* key : {"loss", "grad_norm", "lr", "valid_loss"}) {
        if (step.contains(key)) curve[key].push_back(step[key]);
      }
    }
    return curve;
  }
  std::string golden_file() const {
    return fmt::format("{}/tests/trainer/golden/{}.json", TRAINER_SOURCE_DIR, GetParam().model);
  }

  TinyData data_;
  std::string dir_ = data_.folder() / "run";
};

TEST_P(GoldenCurve, IsFollowed) {
  const nlohmann::json curve = train();
  if (GetParam().dtype == Dtype::fp64 && std::getenv("TRAINER_WRITE_GOLDENS") != nullptr) {
    tests::write_file(golden_file(), curve.dump(1) + "\n");
  }
  const auto golden = nlohmann::json::parse(tests::read_file(golden_file()));

  for (const std::string key : {"loss", "grad_norm", "lr", "valid_loss"}) {
    const bool is_noisy = key == "grad_norm" && GetParam().dtype == Dtype::bf16;
    const double relative = is_noisy ? 0.1 : tolerance(GetParam().dtype);
    ASSERT_EQ(curve[key].size(), golden[key].size()) << key;
    for (size_t i = 0; i < golden[key].size(); ++i) {
      const double expected = golden[key][i];
      EXPECT_NEAR(curve[key][i].get<double>(), expected, relative * expected) << key << " " << i + 1;
    }
  }
}

const std::vector<std::string> kGpt2 = {"model.position=learned", "model.norm=layer_norm", "model.activation=gelu_tanh",
                                        "model.bias=true", "model.num_kv_heads=4"};
const std::vector<std::string> kLlama = {"model.tie_embeddings=false", "model.qk_norm=true", "model.dropout=0"};

INSTANTIATE_TEST_SUITE_P(Models, GoldenCurve,
                         testing::Values(Curve{"gpt2", kGpt2, Dtype::fp64}, Curve{"gpt2", kGpt2, Dtype::fp32},
                                         Curve{"gpt2", kGpt2, Dtype::bf16}, Curve{"llama", kLlama, Dtype::fp64},
                                         Curve{"llama", kLlama, Dtype::fp32}, Curve{"llama", kLlama, Dtype::bf16}),
                         [](const auto& curve) {
                           std::string dtype = tensor::to_string(curve.param.dtype);
                           dtype[0] = static_cast<char>(std::toupper(dtype[0]));
                           return curve.param.model + dtype;
                         });

}  // namespace
}  // namespace trainer
