#include "trainer/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace {

using testing::HasSubstr;
using trainer::MetricsWriter;
using trainer::StepMetrics;
using trainer::to_json_line;

StepMetrics metrics_of(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.samples = step * 32;
  metrics.tokens = step * 8192;
  metrics.loss = 5.0 / (1 + static_cast<double>(step));
  metrics.grad_norm = std::sqrt(static_cast<double>(step));
  metrics.lr = 3e-4;
  metrics.memory_bytes = int64_t{1} << 40;
  return metrics;
}

std::string lines_to(int64_t last_step) {
  std::string lines;
  for (int64_t step = 1; step <= last_step; ++step) lines += to_json_line(metrics_of(step)) + "\n";
  return lines;
}

TEST(Metrics, NamesItsFieldsInOrder) {
  EXPECT_EQ(to_json_line(metrics_of(1)),
            R"({"step":1,"samples":32,"tokens":8192,"loss":2.5,"grad_norm":1.0,"lr":0.0003,"tokens_per_second":0.0,)"
            R"("step_ms":0.0,"mfu":0.0,"memory_bytes":1099511627776})");
}

TEST(Metrics, ReadBackAsTheSameNumbers) {
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2.9999999999999996}) {
    StepMetrics metrics = metrics_of(1);
    metrics.loss = value;
    const auto read = nlohmann::json::parse(to_json_line(metrics))["loss"].get<double>();
    EXPECT_EQ(std::signbit(read), std::signbit(value));
    EXPECT_EQ(read, value);
  }
}

TEST(Metrics, SayWhichNumbersAreNotFinite) {
  StepMetrics metrics = metrics_of(1);
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.extra = {{"valid_loss", -std::numeric_limits<double>::infinity()}};

  const auto line = nlohmann::json::parse(to_json_line(metrics));

  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_EQ(line["non_finite"], nlohmann::json({{"loss", "nan"}, {"grad_norm", "inf"}, {"valid_loss", "-inf"}}));
}

TEST(Metrics, AddWhatAnEvaluationFound) {
  StepMetrics metrics = metrics_of(1);
  metrics.extra = {{"valid_loss", 1.5}, {"valid_bits_per_byte", 2.25}};

  EXPECT_THAT(to_json_line(metrics), testing::EndsWith(R"(,"valid_loss":1.5,"valid_bits_per_byte":2.25})"));
}

class MetricsFile : public testing::Test {
 protected:
  /// What a run that resumes after `last_step` and goes to step 6 leaves.
  std::string resumed_from(int64_t last_step) {
    MetricsWriter writer(path_, last_step);
    for (int64_t step = last_step + 1; step <= 6; ++step) writer.write(metrics_of(step));
    writer.sync();
    return tests::read_file(path_);
  }

  tests::TemporaryFolder folder_;
  std::string path_ = folder_ / "metrics.jsonl";
};

TEST_F(MetricsFile, HasOneLinePerStep) { EXPECT_EQ(resumed_from(0), lines_to(6)); }

TEST_F(MetricsFile, IsWrittenLineByLine) {
  MetricsWriter writer(path_, 0);
  writer.write(metrics_of(1));

  EXPECT_EQ(tests::read_file(path_), lines_to(1));
}

TEST_F(MetricsFile, OfAResumedRunEqualsTheUnbrokenOne) {
  for (int64_t last_step = 0; last_step <= 5; ++last_step) {
    tests::write_file(path_, lines_to(5));
    EXPECT_EQ(resumed_from(last_step), lines_to(6)) << last_step;
  }
}

TEST_F(MetricsFile, LosesHalfALineThatACrashLeft) {
  const std::string next = to_json_line(metrics_of(4));
  const std::string zeros(100, '\0');
  for (const std::string& tail : {next.substr(0, 1), next.substr(0, 20), next, zeros, zeros + "\n"}) {
    tests::write_file(path_, lines_to(3) + tail);
    EXPECT_EQ(resumed_from(3), lines_to(6));
  }
}

TEST_F(MetricsFile, KeepsALineInTheMiddleThatIsNotOurs) {
  tests::write_file(path_, "# a note\n" + lines_to(3));

  EXPECT_EQ(resumed_from(3), "# a note\n" + lines_to(6));
}

TEST_F(MetricsFile, StartsAnewWithoutACheckpoint) {
  tests::write_file(path_, lines_to(5));

  EXPECT_EQ(resumed_from(0), lines_to(6));
}

TEST_F(MetricsFile, NamesThePlaceAndTheReasonWhereItCannotBeOpened) {
  const std::string path = folder_ / "missing/metrics.jsonl";

  const std::string message = tests::message_of<tensor::StorageError>([&] { MetricsWriter(path, 0); });

  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_THAT(message, HasSubstr("No such file or directory"));
  EXPECT_THAT(message, HasSubstr("Fix:"));
}

TEST_F(MetricsFile, ReportsAFullDisk) {
  std::filesystem::create_symlink("/dev/full", path_);
  MetricsWriter writer(path_, 0);

  const std::string message = tests::message_of<tensor::StorageError>([&] { writer.write(metrics_of(7)); });

  EXPECT_THAT(message, HasSubstr(path_ + ": the metrics of step 7 cannot be written: No space left on device"));
}

}  // namespace
