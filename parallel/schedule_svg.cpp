#include <fmt/core.h>

#include <algorithm>

#include "parallel/schedule_drawing.h"
#include "parallel/schedule_picture.h"

namespace parallel {
namespace {

constexpr double kCellWidth = 24;  // pixels of the shortest pass
constexpr double kMaxWidth = 12'000;
constexpr double kRowHeight = 28;
constexpr double kBarHeight = 24;
constexpr double kLeft = 70;
constexpr double kTop = 40;
constexpr double kDigitWidth = 8;
constexpr double kLegendWidth = 190;

const char* color_of(ActionKind pass) {
  constexpr std::array<const char*, 4> kColors = {"#4c78a8", "#54a24b", "#72b7b2", "#f58518"};
  return kColors.at(static_cast<size_t>(pass));
}

/// Later stages of a rank are paler.
double opacity_of(int chunk, int most_chunks) { return 1 - 0.55 * chunk / most_chunks; }

double pixels_per_time(const Picture& picture, double makespan) {
  if (picture.shortest_cell == 0) return 1;
  return std::min(kCellWidth / picture.shortest_cell, kMaxWidth / makespan);
}

std::string bar(const PictureCell& cell, const Picture& picture, double scale, double y) {
  const double x = kLeft + cell.start * scale;
  const double width = (cell.end - cell.start) * scale;
  std::string text = fmt::format(
      "<g><title>{} from {:.6g} to {:.6g}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" "
      "fill=\"{}\" fill-opacity=\"{:.2f}\" stroke=\"white\"/>",
      to_text(cell.pass), cell.start, cell.end, x, y, width, kBarHeight, color_of(cell.pass.kind),
      opacity_of(cell.chunk, picture.most_chunks));
  const std::string number = std::to_string(cell.pass.microbatch);
  if (static_cast<double>(number.size()) * kDigitWidth <= width) {
    text +=
        fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\">{}</text>", x + width / 2, y + 17, number);
  }
  return text + "</g>\n";
}

std::string row(const Picture& picture, size_t rank, double scale) {
  const double y = kTop + kRowHeight * static_cast<double>(rank);
  std::string text = fmt::format("<text x=\"8\" y=\"{:.2f}\">rank {}</text>\n", y + 17, rank);
  for (const PictureCell& cell : picture.ranks[rank]) text += bar(cell, picture, scale, y);
  return text;
}

std::string legend(const Picture& picture, double y) {
  std::string text;
  double x = kLeft;
  for (size_t kind = 0; kind < picture.has_kind.size(); ++kind) {
    if (!picture.has_kind.at(kind)) continue;
    const ActionKind pass = static_cast<ActionKind>(kind);
    text += fmt::format(
        "<rect x=\"{}\" y=\"{:.2f}\" width=\"14\" height=\"14\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{:.2f}\">{} {}</text>\n",
        x, y, color_of(pass), x + 20, y + 12, letter_of(pass), meaning_of(pass));
    x += kLegendWidth;
  }
  if (picture.most_chunks > 1) {
    text += fmt::format("<text x=\"{}\" y=\"{:.2f}\">paler: a later stage of the rank</text>\n", x, y + 12);
  }
  return text;
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const Simulation& simulation) {
  const Picture picture = picture_of(schedule, simulation);
  const double scale = pixels_per_time(picture, simulation.makespan);
  const double legend_y = kTop + kRowHeight * static_cast<double>(picture.ranks.size()) + 12;
  const double width = std::max(kLeft + simulation.makespan * scale + 20, kLeft + 5 * kLegendWidth);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"8\" y=\"22\">{2}</text>\n",
      width, legend_y + 30, idle_text(simulation));
  for (size_t rank = 0; rank < picture.ranks.size(); ++rank) text += row(picture, rank, scale);
  return text + legend(picture, legend_y) + "</svg>\n";
}

}  // namespace parallel
