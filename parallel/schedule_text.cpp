#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "parallel/schedule.h"
#include "tensor/error.h"

namespace parallel {
namespace {

struct KindText {
  ActionKind kind;
  std::string_view name;
  bool has_stage;
  bool has_microbatch;
};

constexpr std::array<KindText, kNumActionKinds> kKinds = {{
    {ActionKind::forward, "F", true, true},
    {ActionKind::backward, "B", true, true},
    {ActionKind::backward_input, "I", true, true},
    {ActionKind::backward_weight, "W", true, true},
    {ActionKind::send_forward, "SEND_F", true, true},
    {ActionKind::receive_forward, "RECV_F", true, true},
    {ActionKind::send_backward, "SEND_B", true, true},
    {ActionKind::receive_backward, "RECV_B", true, true},
    {ActionKind::unshard, "UNSHARD", true, false},
    {ActionKind::reshard, "RESHARD", true, false},
    {ActionKind::reduce_grad, "REDUCE_GRAD", true, true},
    {ActionKind::reduce_tied, "REDUCE_TIED", true, false},
    {ActionKind::step, "STEP", false, false},
}};

constexpr size_t kMaxDigits = 6;
constexpr size_t kMaxQuoted = 40;

/// Takes the digits at the front of `word` off. None where there are none, or too many.
std::optional<int> take_number(std::string_view& word) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const size_t length = static_cast<size_t>(std::find_if_not(word.begin(), word.end(), is_digit) - word.begin());
  if (length == 0 || length > kMaxDigits) return std::nullopt;
  const int number = std::stoi(std::string(word.substr(0, length)));
  word.remove_prefix(length);
  return number;
}

std::optional<Action> parse_action(std::string_view word) {
  const std::optional<int> stage = take_number(word);
  const size_t name_end = std::min(word.find_first_of("0123456789"), word.size());
  const std::string_view name = word.substr(0, name_end);
  word.remove_prefix(name_end);
  const std::optional<int> microbatch = take_number(word);
  const auto* const known =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindText& kind) { return kind.name == name; });
  if (known == kKinds.end() || !word.empty()) return std::nullopt;
  if (known->has_stage != stage.has_value() || known->has_microbatch != microbatch.has_value()) return std::nullopt;
  return Action{known->kind, stage.value_or(0), microbatch.value_or(0)};
}

/// "(1F3+2B0)", or one action.
std::optional<std::vector<Action>> parse_word(std::string_view word) {
  if (!word.starts_with('(')) {
    const std::optional<Action> action = parse_action(word);
    return action ? std::optional(std::vector<Action>{*action}) : std::nullopt;
  }
  const size_t plus = word.find('+');
  if (!word.ends_with(')') || plus == std::string_view::npos) return std::nullopt;
  std::optional<Action> forward = parse_action(word.substr(1, plus - 1));
  const std::optional<Action> backward = parse_action(word.substr(plus + 1, word.size() - plus - 2));
  if (!forward || !backward) return std::nullopt;
  if (forward->kind != ActionKind::forward || backward->kind != ActionKind::backward) return std::nullopt;
  forward->overlaps_next = true;
  return std::vector<Action>{*forward, *backward};
}

std::string quoted(std::string_view word) {
  std::string text(word.substr(0, kMaxQuoted));
  for (char& c : text) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  return '"' + text + (word.size() > kMaxQuoted ? "...\"" : "\"");
}

[[noreturn]] void no_action(const std::string& where, std::string_view word) {
  throw tensor::ConfigError(fmt::format(
      "{}: {} is no action of a pipeline schedule.\n"
      "  An action is stage, kind and micro-batch, 0F1: F forward, B backward, I and W backward of inputs and "
      "weights; a pair that overlaps is (1F3+2B0).\n"
      "  Fix: write one line of such words per pipeline rank; lines that start with # are skipped.",
      where, quoted(word)));
}

std::vector<Action> parse_line(const std::string& line, const std::string& where) {
  std::vector<Action> list;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto actions = parse_word(word);
    if (!actions) no_action(where, word);
    list.insert(list.end(), actions->begin(), actions->end());
  }
  return list;
}

/// Numbers start at 0 and leave none out, so that a typing error cannot ask for a million stages.
void require_consecutive(const std::set<int>& numbers, const std::string& place, const char* what) {
  int expected = 0;
  for (const int number : numbers) {
    if (number == expected++) continue;
    throw tensor::ConfigError(
        fmt::format("{}: there is a {} {}, but no {} {}.\n"
                    "  They are counted from 0, and none is left out.\n"
                    "  Fix: correct the numbers.",
                    place, what, number, what, expected - 1));
  }
}

/// Stages and micro-batches are those that have actions; a stage is where it is first seen.
void complete(Schedule& schedule, const std::string& place) {
  std::map<int, int> rank_of_stage;
  std::set<int> stages, microbatches;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      if (action.kind == ActionKind::step) continue;
      rank_of_stage.emplace(action.stage, static_cast<int>(rank));
      stages.insert(action.stage);
      microbatches.insert(action.microbatch);
    }
  }
  require_consecutive(stages, place, "stage");
  require_consecutive(microbatches, place, "micro-batch");
  for (const auto& [stage, rank] : rank_of_stage) schedule.rank_of_stage.push_back(rank);
  schedule.num_microbatches = static_cast<int>(microbatches.size());
}

}  // namespace

std::string to_string(ActionKind kind) {
  static constexpr std::array<const char*, kNumActionKinds> kNames = {
      "forward",       "backward",         "backward_input", "backward_weight", "send_forward", "receive_forward",
      "send_backward", "receive_backward", "unshard",        "reshard",         "reduce_grad",  "reduce_tied",
      "step"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string to_text(const Action& action) {
  const KindText& kind = kKinds.at(static_cast<size_t>(action.kind));
  std::string text = kind.has_stage ? std::to_string(action.stage) : "";
  text += kind.name;
  return kind.has_microbatch ? text + std::to_string(action.microbatch) : text;
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& list : schedule.ranks) {
    std::string line;
    bool closes_pair = false;
    for (const Action& action : list) {
      if (!line.empty() && !closes_pair) line += ' ';
      if (action.overlaps_next) line += '(';
      line += to_text(action);
      if (closes_pair) line += ')';
      if (action.overlaps_next) line += '+';
      closes_pair = action.overlaps_next;
    }
    text += line + '\n';
  }
  return text;
}

Schedule schedule_from_text(const std::string& text, const std::string& place) {
  Schedule schedule;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line[start] == '#') continue;
    schedule.ranks.push_back(parse_line(line, fmt::format("{}:{}", place, number)));
  }
  if (schedule.ranks.empty()) {
    throw tensor::ConfigError(place +
                              ": this pipeline schedule has no actions.\n"
                              "  Fix: write one line of actions per pipeline rank.");
  }
  complete(schedule, place);
  return schedule;
}

}  // namespace parallel
