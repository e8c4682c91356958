#pragma once
/// What each named schedule can do. Internal to schedule*.cpp.

#include "parallel/schedule_generate.h"

namespace parallel {

/// Whether a rank visits a stage for as many micro-batches as the settings say.
enum class Grouping { none, by_setting };

constexpr int kNoLimit = 0;

struct ScheduleLimits {
  int usual_virtual_stages = 1;
  int least_virtual_stages = 1;
  int most_virtual_stages = kNoLimit;
  int microbatches_per_rank = 0;  ///< a step has at least so many for every rank
  Grouping grouping = Grouping::none;
};

struct ScheduleRules {
  const char* name;
  Schedule (*place)(const ScheduleShape& shape);     ///< stages on ranks, no passes
  Schedule (*generate)(const ScheduleShape& shape);  ///< passes too
  ScheduleLimits limits;
};

/// nullptr where there is none.
const ScheduleRules* find_rules(const std::string& name);

bool is_schedule_file(const std::string& name);
/// Of "file:PATH".
Schedule read_schedule(const std::string& name);

/// What 0 stands for, put in.
ScheduleShape shape_of(const ScheduleSettings& settings);

/// The part of schedule_problems() that does not depend on the number of micro-batches.
std::vector<LayoutProblem> placement_problems(const ScheduleSettings& settings);

/// The part of schedule_faults() that is about all but passes. Of a schedule whose passes are complete.
void find_action_faults(const Schedule& schedule, std::vector<std::string>& faults);
/// Anything but passes, or no backward.
std::vector<std::string> passes_only_faults(const Schedule& schedule);

}  // namespace parallel
