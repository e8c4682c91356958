#include "trainer/progress_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace trainer {
namespace {

/// Three digits and a unit, the smallest unit that keeps the number below 1000.
template <size_t kNumUnits>
std::string with_unit(double value, const std::array<const char*, kNumUnits>& units) {
  if (!std::isfinite(value)) return "?";
  size_t unit = 0;
  // 999.5 would be printed as 1000
  while (value >= 999.5 && unit + 1 < kNumUnits) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, units[unit]);
}

struct Field {
  int first_to_go;  // the smallest leaves first
  std::string text;
};

}  // namespace

std::string format_count(double count) { return with_unit(count, std::array{"", "k", "M", "G", "T", "P"}); }

std::string format_bytes(int64_t bytes) {
  return with_unit(static_cast<double>(bytes), std::array{" B", " kB", " MB", " GB", " TB", " PB"});
}

std::string format_duration(double seconds) {
  constexpr double kLongest = 1e9;  // 31 years
  if (!(seconds >= 0 && seconds < kLongest)) return "?";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t minutes = total / 60, hours = total / 3600, days = total / 86400;
  if (days > 0) return fmt::format("{}d{:02}h", days, hours % 24);
  if (hours > 0) return fmt::format("{}h{:02}m", hours, minutes % 60);
  if (minutes > 0) return fmt::format("{}m{:02}s", minutes, total % 60);
  return fmt::format("{}s", total);
}

std::string format_progress(const ProgressLine& line, int width) {
  const std::string steps = std::to_string(line.steps);
  std::vector<Field> fields = {{6, fmt::format("step {:>{}}/{}", line.step, steps.size(), steps)},
                               {5, fmt::format("loss {:.4f}", line.loss)},
                               {3, format_count(line.tokens_per_second) + " tok/s"},
                               {2, fmt::format("MFU {:.1f}%", line.mfu * 100)},
                               {4, "ETA " + format_duration(line.seconds_left)},
                               {1, "mem " + format_bytes(line.memory_bytes)}};
  const auto join = [&] {
    std::string text;
    for (const Field& field : fields) text += (text.empty() ? "" : "  ") + field.text;
    return text;
  };
  const auto goes_first = [](const Field& a, const Field& b) { return a.first_to_go < b.first_to_go; };
  while (fields.size() > 1 && std::ssize(join()) > width) {
    fields.erase(std::min_element(fields.begin(), fields.end(), goes_first));
  }
  return join().substr(0, static_cast<size_t>(std::max(width, 0)));
}

}  // namespace trainer
