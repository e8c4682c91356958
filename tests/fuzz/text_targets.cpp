/// What people write or edit: configs, --set, schedules, and the metrics of a run that goes on.

#include <filesystem>
#include <stdexcept>

#include "parallel/schedule.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"
#include "tests/support/temporary_folder.h"
#include "trainer/config_changes.h"
#include "trainer/config_reader.h"
#include "trainer/metrics.h"

namespace fuzz {
namespace {

class ConfigTarget final : public Target {
 public:
  ConfigTarget() {
    for (const char* name : {"quickstart", "llama_1b", "moe_small", "long_context", "gpt2_124m"}) {
      const std::string path = fmt::format("{}/configs/{}.toml", TRAINER_SOURCE_DIR, name);
      texts_.push_back(tests::read_file(path));
      texts_.push_back(trainer::to_toml(trainer::load_config(path)));
    }
  }

  void feed(Random& random) override {
    const std::string& text = random.one_of(texts_);
    const std::string changed = draw(text, random);
    trainer::config_changes(changed, text);  // of a checkpoint's config, which may be any text
    const trainer::Config config = trainer::parse_config(changed, "fuzz.toml", draw_overrides(random));
    const std::string written = trainer::to_toml(config);
    if (trainer::to_toml(read_back(written)) != written) throw std::logic_error("it reads back to another config");
  }

 private:
  inline static const std::vector<std::string> kWords = {"[",          "]",        "{",       "}",
                                                         "=",          "\"",       "'",       "\"\"\"",
                                                         ",",          ".",        "#",       "\n",
                                                         "\r\n",       "\\",       "\\u0000", "true",
                                                         "1e400",      "nan",      "-inf",    "0x7fffffffffffffff",
                                                         "1979-05-27", "07:32:00", "model",   "parallel",
                                                         "stages",     "data",     "train",   "weight",
                                                         "path",       "auto",     "every",   "after",
                                                         ":",          "preset",   "_",       "9223372036854775808",
                                                         "\t",         "\xc3\xa9", "moe",     "file"};

  static std::string draw(const std::string& text, Random& random) {
    if (random.one_in(4)) return text;  // for --set to break
    if (random.one_in(8)) return with_other_bytes(text, random);
    if (random.one_in(64)) return "a = " + nested_lists(random.below(100'000));
    return with_other_words(text, kWords, random);
  }

  static std::vector<std::string> draw_overrides(Random& random) {
    std::vector<std::string> overrides;
    while (random.one_in(3)) {
      overrides.push_back(
          with_other_words(random.one_of({"train.steps=100", "model.moe.layers=every:2",
                                          "data.train=[\"a.bin\", {path=\"b\", weight=2}]", "parallel.stages=[1,2]",
                                          "parallel.dp=auto", "run.name=a-b_c.d"}),
                           kWords, random));
    }
    return overrides;
  }

  static trainer::Config read_back(const std::string& text) {
    try {
      return trainer::parse_config(text, "written.toml");
    } catch (const tensor::Error& error) {
      throw std::logic_error(fmt::format("it does not read back: {}\n{}", error.what(), text));
    }
  }

  std::vector<std::string> texts_;
};

class ScheduleTarget final : public Target {
 public:
  explicit ScheduleTarget(const std::string& folder) : path_(folder + "/schedule.txt") {
    for (const std::string& name : parallel::schedule_names()) {
      for (const int ranks : {1, 2, 4}) {
        texts_.push_back(to_text(parallel::make_schedule({.name = name, .num_ranks = ranks, .num_microbatches = 8})));
      }
    }
  }

  void feed(Random& random) override {
    const std::string& text = random.one_of(texts_);
    const std::string changed =
        random.one_in(4) ? with_other_bytes(text, random) : with_other_words(text, kWords, random);
    const parallel::Schedule schedule = parallel::schedule_from_text(changed, path_);
    if (parallel::schedule_from_text(to_text(schedule), path_) != schedule) {
      throw std::logic_error("it reads back to another schedule");
    }
    tests::write_file(path_, changed);
    const bool fits = random.one_in(2);
    const parallel::ScheduleSettings settings = {.name = "file:" + path_,
                                                 .num_ranks = fits ? schedule.num_ranks() : 2,
                                                 .num_microbatches = fits ? schedule.num_microbatches : 8};
    parallel::default_virtual_stages(settings.name);
    parallel::make_schedule(settings);
    parallel::make_forward_schedule(settings);
  }

 private:
  inline static const std::vector<std::string> kWords = {
      "(",   ")",    "+",        "\n",   " ",        "#",        "0F0",           "1B0",      "0I7",
      "3W7", "STEP", "0UNSHARD", "1F99", "999999F0", "0F999999", "0REDUCE_GRAD7", "1SEND_F0", "\t"};

  std::string path_;
  std::vector<std::string> texts_;
};

/// Lines of an earlier run, of which those after the checkpoint are cut off. Whatever is there, a run goes on.
class MetricsTarget final : public Target {
 public:
  explicit MetricsTarget(const std::string& folder) : path_(folder + "/metrics.jsonl") {
    for (int64_t step = 1; step < 8; ++step)
      lines_ += trainer::to_json_line({.step = step, .loss = 0.5, .extra = {}}) + "\n";
  }

  void feed(Random& random) override {
    static const std::vector<std::string> kWords = {"{", "}",  "[",    "]",    "\"", ":",
                                                    ",", "\n", "step", "1e99", "-",  "null"};
    tests::write_file(path_, draw(random, kWords));
    const int64_t last_step = static_cast<int64_t>(random.below(9));
    trainer::MetricsWriter(path_, last_step).write({.step = last_step + 1, .extra = {}});
    const std::string text = tests::read_file(path_);
    if (!text.ends_with(trainer::to_json_line({.step = last_step + 1, .extra = {}}) + "\n")) {
      throw std::logic_error("the new line is not the last one");
    }
  }

 private:
  std::string draw(Random& random, const std::vector<std::string>& words) const {
    if (random.one_in(64)) return nested_lists(random.below(100'000)) + "\n" + lines_;
    return random.one_in(2) ? with_other_bytes(lines_, random) : with_other_words(lines_, words, random);
  }

  std::string path_, lines_;
};

}  // namespace

std::vector<TargetEntry> text_targets() {
  using tensor::ExitCode;
  return {
      {"config",
       {ExitCode::config, ExitCode::layout},
       [](const std::string&) { return std::make_unique<ConfigTarget>(); }},
      {"schedule",
       {ExitCode::config, ExitCode::layout},
       [](const std::string& folder) { return std::make_unique<ScheduleTarget>(folder); }},
      {"metrics", {}, [](const std::string& folder) { return std::make_unique<MetricsTarget>(folder); }},
  };
}

}  // namespace fuzz
