#include "trainer/nearest.h"

#include <algorithm>

namespace trainer {

int edit_distance(const std::string& a, const std::string& b) {
  const size_t width = b.size() + 1;
  std::vector<int> table((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> int& { return table[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

namespace {

/// "warmup" -> "warmup_steps", if that is the only one that begins so.
std::string only_completion(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kShortest = 3;
  std::vector<std::string> found;
  for (const std::string& candidate : known)
    if (word.size() >= kShortest && candidate.rfind(word, 0) == 0) found.push_back(candidate);
  return found.size() == 1 ? found.front() : "";
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kLongestKey = 64;  // the distance costs the product of both lengths
  if (word.size() > kLongestKey) return "";
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) * 2 / 5) + 1;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? only_completion(word, known) : best;
}

std::string join_or(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace trainer
