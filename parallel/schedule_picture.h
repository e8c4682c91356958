#pragma once
/// What both drawings show. Internal to schedule_drawing.cpp and schedule_svg.cpp.

#include <array>

#include "parallel/schedule_simulator.h"

namespace parallel {

/// One pass in the picture. The halves of an overlapped pair stand side by side, each in its part of the time.
struct PictureCell {
  Action pass;
  int chunk = 0;  ///< which of its rank's stages, from 0
  double start = 0;
  double end = 0;
};

struct Picture {
  std::vector<std::vector<PictureCell>> ranks;
  std::array<bool, 4> has_kind = {};  ///< F, B, I, W
  bool has_pairs = false;
  int most_chunks = 1;       ///< stages on a rank
  double shortest_cell = 0;  ///< time, of passes worth a label; 0 where nothing takes any
};

Picture picture_of(const Schedule& schedule, const Simulation& simulation);

/// "Makespan 33, idle / ideal 37.5 %, idle / total 27.3 %"
std::string idle_text(const Simulation& simulation);

/// F, B, I and W of passes; what it stands for.
char letter_of(ActionKind pass);
const char* meaning_of(ActionKind pass);

}  // namespace parallel
