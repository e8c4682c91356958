#include "parallel/schedule.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "parallel/schedule_generate.h"
#include "parallel/schedule_rules.h"
#include "tensor/error.h"
#include "tensor/philox.h"

namespace parallel {
namespace {

constexpr std::array<ScheduleRules, 8> kRules = {{
    {"gpipe", loop_placement, gpipe, {.most_virtual_stages = 1}},
    {"1f1b", loop_placement, one_forward_one_backward, {.most_virtual_stages = 1}},
    {"interleaved", loop_placement, interleaved, {.usual_virtual_stages = 2, .grouping = Grouping::by_setting}},
    {"bfs", loop_placement, breadth_first, {.usual_virtual_stages = 2}},
    {"zb_h1", loop_placement, zero_bubble_h1, {.most_virtual_stages = 1}},
    {"interleaved_zb",
     loop_placement,
     interleaved_zero_bubble,
     {.usual_virtual_stages = 2, .grouping = Grouping::by_setting}},
    {"zb_v",
     v_placement,
     zero_bubble_v,
     {.usual_virtual_stages = 2, .least_virtual_stages = 2, .most_virtual_stages = 2}},
    {"dualpipe_v",
     v_placement,
     dualpipe_v,
     {.usual_virtual_stages = 2, .least_virtual_stages = 2, .most_virtual_stages = 2, .microbatches_per_rank = 2}},
}};

const std::string kFilePrefix = "file:";

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw tensor::ConfigError(
      fmt::format("file:{}: this pipeline schedule {}.\n"
                  "  parallel.schedule = \"file:{}\" names a text file with one line of passes per pipeline rank.\n"
                  "  Fix: give the path of such a file, from the folder that the run starts in.",
                  path, what, path));
}

std::string read_file(const std::string& path) {
  constexpr std::uintmax_t kMaxBytes = std::uintmax_t{256} << 20;  // more passes than any step has
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse_file(path, "is not there, or no file");
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (bytes > kMaxBytes) refuse_file(path, fmt::format("has {} bytes; the most is {}", bytes, kMaxBytes));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.fail()) refuse_file(path, "cannot be read, or is empty");
  return text.str();
}

/// Forwards in waves: in a unit of time each rank runs one that is ready, of its latest stage, so that micro-batches
/// leave before new ones enter.
void add_forward_waves(Schedule& schedule) {
  const size_t num_stages = schedule.rank_of_stage.size();
  std::vector<int> num_done(num_stages, 0);
  while (num_done.back() < schedule.num_microbatches) {
    const std::vector<int> before = num_done;
    std::vector<char> is_busy(schedule.ranks.size(), 0);
    for (size_t stage = num_stages; stage-- > 0;) {
      const size_t rank = static_cast<size_t>(schedule.rank_of_stage[stage]);
      const int num_ready = stage == 0 ? schedule.num_microbatches : before[stage - 1];
      if (is_busy[rank] != 0 || before[stage] >= num_ready) continue;
      is_busy[rank] = 1;
      schedule.ranks[rank].push_back({ActionKind::forward, static_cast<int>(stage), num_done[stage]++});
    }
  }
}

}  // namespace

const ScheduleRules* find_rules(const std::string& name) {
  const auto* const found =
      std::find_if(kRules.begin(), kRules.end(), [&](const ScheduleRules& rules) { return name == rules.name; });
  return found == kRules.end() ? nullptr : found;
}

bool is_schedule_file(const std::string& name) { return name.starts_with(kFilePrefix); }

Schedule read_schedule(const std::string& name) {
  const std::string path = name.substr(kFilePrefix.size());
  return schedule_from_text(read_file(path), path);
}

ScheduleShape shape_of(const ScheduleSettings& settings) {
  const int usual_group = default_microbatch_group(settings.num_ranks, settings.num_microbatches);
  const int group = settings.microbatch_group == 0 ? usual_group : settings.microbatch_group;
  return {
      .num_ranks = settings.num_ranks,
      .num_microbatches = settings.num_microbatches,
      .virtual_stages = settings.virtual_stages == 0 ? default_virtual_stages(settings.name) : settings.virtual_stages,
      .microbatch_group = std::min(group, settings.num_microbatches)};
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const ScheduleRules& rules : kRules) names.emplace_back(rules.name);
    return names;
  }();
  return kNames;
}

int default_virtual_stages(const std::string& name) {
  if (is_schedule_file(name)) {
    const Schedule schedule = read_schedule(name);
    return schedule.num_stages() / schedule.num_ranks();
  }
  const ScheduleRules* rules = find_rules(name);
  return rules == nullptr ? 1 : rules->limits.usual_virtual_stages;
}

Schedule make_schedule(const ScheduleSettings& settings) {
  throw_if_any(schedule_problems(settings));
  if (is_schedule_file(settings.name)) return read_schedule(settings.name);
  return find_rules(settings.name)->generate(shape_of(settings));
}

Schedule make_forward_schedule(const ScheduleSettings& settings) {
  throw_if_any(placement_problems(settings));
  Schedule schedule;
  if (is_schedule_file(settings.name)) {
    schedule.rank_of_stage = read_schedule(settings.name).rank_of_stage;
    schedule.ranks.resize(static_cast<size_t>(settings.num_ranks));
  } else {
    schedule = find_rules(settings.name)->place(shape_of(settings));
  }
  schedule.num_microbatches = settings.num_microbatches;
  add_forward_waves(schedule);
  return schedule;
}

uint64_t schedule_hash(const Schedule& schedule) { return tensor::hash_name(to_text(schedule)); }

}  // namespace parallel
