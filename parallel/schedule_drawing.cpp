#include "parallel/schedule_drawing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "parallel/schedule_picture.h"
#include "parallel/text_table.h"

namespace parallel {
namespace {

constexpr int kMaxParts = 8;
constexpr int kLeastColumns = 40;
constexpr int kBase36 = 36;
constexpr double kMaxColumns = 1e9;  // of a scale that is tried

/// How passes are written, and how many columns a unit of time takes.
struct Scale {
  bool has_chunk_digit = false;  // more than two stages a rank: F1x; two: F and f
  bool is_base_36 = false;       // micro-batches 10, 11, ... are a, b, ...
  double columns_per_time = 0;
  size_t num_columns = 0;   // of the whole timeline
  size_t part_columns = 1;  // of the parts that it is broken into
};

char digit_36(int number) { return static_cast<char>(number < 10 ? '0' + number : 'a' + number - 10); }

std::string label_of(const PictureCell& cell, const Scale& scale) {
  char letter = letter_of(cell.pass.kind);
  if (!scale.has_chunk_digit && cell.chunk > 0) letter = static_cast<char>(std::tolower(letter));
  std::string label(1, letter);
  if (scale.has_chunk_digit) label += digit_36(cell.chunk % kBase36);
  return label +
         (scale.is_base_36 ? std::string(1, digit_36(cell.pass.microbatch)) : std::to_string(cell.pass.microbatch));
}

void set_columns(Scale& scale, double columns_per_time, double makespan) {
  scale.columns_per_time = columns_per_time;
  scale.num_columns = static_cast<size_t>(std::lround(std::min(columns_per_time * makespan, kMaxColumns)));
}

/// Equal parts that fit a line, and cut no pass in two where all passes are equally long.
size_t part_columns(size_t num_columns, size_t line, size_t cell) {
  const auto parts_of = [&](size_t size) { return (num_columns + size - 1) / size; };
  const size_t least = parts_of(std::max<size_t>(parts_of(line), 1));
  const size_t whole_cells = (least + cell - 1) / cell * cell;
  return whole_cells <= line ? std::max<size_t>(whole_cells, 1) : line;
}

/// The widest cells with which the timeline fits a line; else the narrowest, in several lines.
Scale choose_scale(const Picture& picture, int num_microbatches, double makespan, size_t line) {
  Scale scale{.has_chunk_digit = picture.most_chunks > 2};
  if (picture.shortest_cell == 0) return scale;
  const size_t letters = scale.has_chunk_digit ? 2 : 1;
  const size_t wide = letters + std::to_string(num_microbatches - 1).size();
  const bool can_be_narrow = num_microbatches > 10 && num_microbatches <= kBase36;
  const size_t narrow = can_be_narrow ? letters + 1 : wide;
  size_t cell = 1;
  for (const size_t width : {wide + 2, wide + 1, wide, narrow}) {
    cell = width;
    scale.is_base_36 = width < wide;
    set_columns(scale, static_cast<double>(width) / picture.shortest_cell, makespan);
    if (scale.num_columns <= line) break;
  }
  const size_t most = line * kMaxParts;
  if (scale.num_columns > most) {
    cell = 1;
    set_columns(scale, static_cast<double>(most) / makespan, makespan);
  }
  scale.part_columns = part_columns(scale.num_columns, line, cell);
  return scale;
}

std::string draw_row(const std::vector<PictureCell>& cells, const Scale& scale) {
  std::string row(scale.num_columns, ' ');
  for (const PictureCell& cell : cells) {
    const size_t begin = static_cast<size_t>(std::lround(cell.start * scale.columns_per_time));
    const size_t end = std::min(static_cast<size_t>(std::lround(cell.end * scale.columns_per_time)), row.size());
    std::string text = label_of(cell, scale);
    text.resize(end - std::min(begin, end), '-');
    if (cell.pass.overlaps_next && text.ends_with('-')) text.back() = '&';
    row.replace(begin, text.size(), text);
  }
  return row;
}

std::string draw_rows(const Picture& picture, const Scale& scale) {
  const size_t number_width = std::to_string(picture.ranks.size() - 1).size();
  std::vector<std::string> rows;
  for (const auto& cells : picture.ranks) rows.push_back(draw_row(cells, scale));
  std::string text;
  for (size_t begin = 0; begin < scale.num_columns; begin += scale.part_columns) {
    if (scale.num_columns > scale.part_columns) {
      const double end = static_cast<double>(std::min(begin + scale.part_columns, scale.num_columns));
      text += fmt::format("time {:.4g} to {:.4g}\n", static_cast<double>(begin) / scale.columns_per_time,
                          end / scale.columns_per_time);
    }
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      std::string row =
          fmt::format("rank {:>{}}  {}", rank, number_width, rows[rank].substr(begin, scale.part_columns));
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + '\n';
    }
    text += '\n';
  }
  return text;
}

std::string legend_of(const Picture& picture, const Scale& scale) {
  std::string text;
  for (size_t kind = 0; kind < picture.has_kind.size(); ++kind) {
    if (!picture.has_kind.at(kind)) continue;
    const ActionKind pass = static_cast<ActionKind>(kind);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", letter_of(pass), meaning_of(pass));
  }
  text += ", each with its micro-batch; blank: idle.\n";
  if (picture.has_pairs) text += "F0&B1: both at once, overlapped.\n";
  if (picture.most_chunks == 2) text += "Capitals: the rank's first stage; small letters: its second.\n";
  if (scale.has_chunk_digit) text += "The digit behind the letter: which of the rank's stages.\n";
  if (scale.is_base_36) text += "Micro-batches 10, 11, ... are a, b, ...\n";
  return text;
}

std::string stages_of(const Schedule& schedule, int rank) {
  std::string text;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    if (schedule.rank_of_stage[static_cast<size_t>(stage)] != rank) continue;
    if (!text.empty()) text += ',';
    text += std::to_string(stage);
  }
  return text;
}

std::string table_of(const Schedule& schedule, const Simulation& simulation) {
  std::vector<std::vector<std::string>> rows = {{"rank", "stages", "busy", "idle", "peak live micro-batches"}};
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const size_t r = static_cast<size_t>(rank);
    rows.push_back({std::to_string(rank), stages_of(schedule, rank), fmt::format("{:.6g}", simulation.busy[r]),
                    fmt::format("{:.6g}", simulation.idle(rank)), std::to_string(simulation.peak_live[r])});
  }
  return format_table(rows, 2);
}

}  // namespace

std::string draw_timeline(const Schedule& schedule, const Simulation& simulation, int columns) {
  const Picture picture = picture_of(schedule, simulation);
  const size_t prefix = std::string("rank   ").size() + std::to_string(schedule.num_ranks() - 1).size();
  const size_t line = static_cast<size_t>(std::max(columns, kLeastColumns)) - prefix;
  const Scale scale = choose_scale(picture, schedule.num_microbatches, simulation.makespan, line);
  return draw_rows(picture, scale) + legend_of(picture, scale) + idle_text(simulation) + ".\n" +
         table_of(schedule, simulation);
}

}  // namespace parallel
