#pragma once
/// Pictures of a simulated schedule: time goes to the right, one row per rank.

#include <string>

#include "parallel/schedule_simulator.h"

namespace parallel {

/// For a terminal, without colour: "F2F3B0--" is two forwards and a backward that takes twice as long, blanks are idle
/// time. A timeline that is longer than a line of `columns` is broken into parts. Below it: what the marks mean,
/// makespan and idle time, and what each rank does and keeps. The simulation is of this schedule, and came to its end.
std::string draw_timeline(const Schedule& schedule, const Simulation& simulation, int columns);

/// A file that any browser shows; every pass says its name and times under the mouse.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation);

}  // namespace parallel
