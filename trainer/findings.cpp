#include "trainer/findings.h"

#include <algorithm>

namespace trainer {
namespace {

/// "file:12" -> 12, so that messages come in the order of the file; a --set comes last.
int64_t line_of(const std::string& place) {
  constexpr int64_t kAfterTheFile = int64_t{1} << 40;
  const size_t colon = place.rfind(':');
  if (place.rfind("--set", 0) == 0 || colon == std::string::npos) return kAfterTheFile;
  int64_t line = 0;
  for (size_t i = colon + 1; i < place.size() && place[i] >= '0' && place[i] <= '9'; ++i)
    line = line * 10 + (place[i] - '0');
  return line;
}

}  // namespace

std::string ConfigPlaces::of(std::string path) const {
  while (!path.empty()) {
    const auto found = places_.find(path);
    if (found != places_.end()) return found->second;
    const size_t dot = path.rfind('.');
    path = dot == std::string::npos ? "" : path.substr(0, dot);
  }
  return origin_ + ":1";
}

void Findings::add(Finding finding, tensor::ExitCode code) {
  std::string text = finding.place + ": " + finding.what;
  if (!finding.why.empty()) text += "\n  " + finding.why;
  text += "\n  Fix: " + finding.fix;
  messages_.push_back({finding.place, text});
  if (code == tensor::ExitCode::config) has_config_error_ = true;
}

void Findings::throw_if_any() const {
  if (messages_.empty()) return;
  constexpr size_t kMostShown = 50;
  std::vector<Message> sorted = messages_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Message& a, const Message& b) { return line_of(a.place) < line_of(b.place); });
  std::string text;
  for (size_t i = 0; i < std::min(sorted.size(), kMostShown); ++i) text += (i ? "\n" : "") + sorted[i].text;
  if (sorted.size() > kMostShown) text += fmt::format("\n... and {} more.", sorted.size() - kMostShown);
  if (has_config_error_) throw tensor::ConfigError(text);
  throw tensor::LayoutError(text);
}

}  // namespace trainer
