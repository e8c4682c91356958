#include "data/added_tokens.h"

#include <algorithm>

#include "data/utf8.h"

namespace data {

AddedTokenFinder::AddedTokenFinder(std::span<const AddedToken* const> tokens) : is_empty_(tokens.empty()) {
  for (const AddedToken* token : tokens)
    by_first_byte_[static_cast<unsigned char>(token->content.front())].push_back(token);
  for (auto& bucket : by_first_byte_) {
    std::stable_sort(bucket.begin(), bucket.end(),
                     [](const AddedToken* a, const AddedToken* b) { return a->content.size() > b->content.size(); });
  }
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, size_t start) const {
  if (is_empty_) return {nullptr, text.size(), text.size()};
  for (size_t i = start; i < text.size(); ++i) {
    for (const AddedToken* token : by_first_byte_[static_cast<unsigned char>(text[i])])
      if (text.substr(i).starts_with(token->content)) return {token, i, i + token->content.size()};
  }
  return {nullptr, text.size(), text.size()};
}

size_t white_space_at_end(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t character = begin - 1;
    while (character > 0 && (static_cast<unsigned char>(text[character]) & 0xC0) == 0x80) --character;
    if (!is_white_space(utf8_decode(text.substr(character, begin - character)))) break;
    begin = character;
  }
  return text.size() - begin;
}

size_t white_space_at_begin(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_white_space(utf8_decode(text.substr(end)))) end += utf8_length(text.substr(end));
  return end;
}

}  // namespace data
