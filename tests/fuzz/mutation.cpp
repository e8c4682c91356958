#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>

namespace fuzz {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // an input that doubles ever so often takes all the time

void overwrite(std::string& bytes, Random& random) {
  const int64_t number = any_number(random);
  const size_t size = random.one_of<size_t>({1, 2, 4, 8});
  if (bytes.size() < size) return;
  std::memcpy(bytes.data() + random.below(bytes.size() - size + 1), &number, size);
}

void change_bytes(std::string& bytes, Random& random) {
  if (bytes.empty()) return;
  const size_t at = random.below(bytes.size());
  const size_t count = std::min(1 + random.below(random.one_in(4) ? 4096 : 8), bytes.size() - at);
  switch (random.below(8)) {
    case 0:
      bytes.erase(at, count);
      break;
    case 1:
      bytes.insert(random.below(bytes.size()), bytes.substr(at, count));
      break;
    case 2:
      std::fill_n(bytes.begin() + static_cast<int64_t>(at), count, random.one_in(2) ? '\0' : '\xff');
      break;
    case 3:
    case 4:
      overwrite(bytes, random);
      break;
    default:
      bytes[at] ^= static_cast<char>(random.one_in(2) ? 1 << random.below(8) : random.below(256));
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (is_part(text[i]) && end < text.size() && is_part(text[end])) ++end;
    words.push_back(text.substr(i, end - i));
    i = end;
  }
  return words;
}

void change_words(std::vector<std::string>& words, const std::vector<std::string>& dictionary, Random& random) {
  if (words.empty()) return;
  const auto at = words.begin() + static_cast<int64_t>(random.below(words.size()));
  switch (random.below(7)) {
    case 0:
      words.erase(at);
      break;
    case 1:
      words.insert(at, *at);
      break;
    case 2:
      std::swap(*at, random.one_of(words));
      break;
    case 3:
      *at = std::to_string(any_number(random));
      break;
    case 4:
      words.insert(at, 1 + random.below(random.one_in(8) ? 3000 : 4), random.one_of(dictionary));
      break;
    default:
      *at = random.one_of(dictionary);
  }
}

std::string any_text(Random& random) {
  switch (random.below(4)) {
    case 0:
      return "../../etc/passwd";
    case 1:
      return std::string("a\0b\x1b[31m", 8);
    default:
      return std::string(random.below(700), "a/\xc3\xa9"[random.below(2)]);
  }
}

Json any_value(Random& random) {
  switch (random.below(9)) {
    case 0:
      return nullptr;
    case 1:
      return random.one_of({1e300, -0.5, 1e-320});
    case 2:
      return std::numeric_limits<uint64_t>::max();
    case 3:
      return random.one_in(2);
    case 4:
      return Json::array({any_number(random), "x"});
    case 5:
      return Json::object({{"path", "index.h5"}, {"bytes", any_number(random)}});
    case 6:
      return any_text(random);
    default:
      return any_number(random);
  }
}

/// A random value inside, at any depth, and what it lies in.
struct Place {
  Json* parent;
  Json::iterator at;
};
Place pick(Json& json, Random& random) {
  auto at = json.begin();
  std::advance(at, static_cast<int64_t>(random.below(json.size())));
  const bool goes_on = at->is_structured() && !at->empty() && !random.one_in(4);
  return goes_on ? pick(*at, random) : Place{&json, at};
}

void change_value(Json& json, Random& random) {
  if (!json.is_structured() || json.empty()) return;
  const Place place = pick(json, random);
  const Json copy = *place.at;
  switch (random.below(6)) {
    case 0:
      place.parent->erase(place.at);
      break;
    case 1:
      if (place.parent->is_array()) place.parent->insert(place.at, copy);
      break;
    case 2:
      *pick(json, random).at = copy;
      break;
    default:
      *place.at = any_value(random);
  }
}

}  // namespace

std::string with_other_bytes(std::string bytes, Random& random) {
  for (size_t i = 0; i <= random.below(4); ++i) change_bytes(bytes, random);
  if (random.one_in(8)) bytes.resize(random.below(bytes.size() + 1));
  return bytes;
}

std::string with_other_words(const std::string& text, const std::vector<std::string>& dictionary, Random& random) {
  std::vector<std::string> words = words_of(text);
  for (size_t i = 0; i <= random.below(4); ++i) change_words(words, dictionary, random);
  std::string changed;
  for (const std::string& word : words) changed += word;
  return changed.substr(0, kMostBytes);
}

Json with_other_values(Json json, Random& random) {
  for (size_t i = 0; i <= random.below(3); ++i) change_value(json, random);
  return json;
}

std::string nested_lists(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace fuzz
