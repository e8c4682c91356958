#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "data/recent_unicode.h"
#include "data/utf8.h"
#include "tensor/error.h"

namespace data {

using tensor::DataError;

namespace {

// PCRE2's own \s also takes U+180E, which stopped being white space in Unicode 6.3.
constexpr std::string_view kWhiteSpace =
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

/// What \p{name} lacks of Unicode 16.
std::string_view recent_ranges(std::string_view name) {
  for (const RecentCategory& category : kRecentCategories)
    if (category.name == name) return category.ranges;
  return {};
}

[[noreturn]] void refuse(const std::string& where, std::string_view pattern, std::string_view part) {
  throw DataError(
      fmt::format("{}: pattern \"{}\" uses \"{}\", which is not supported.\n"
                  "  Only what all regular-expression engines read alike is: literals, classes, groups, "
                  "\\s \\S \\d \\p{{..}}, ? * + {{n,m}}.",
                  where, pattern, part));
}

/// Copies the escape at pattern[i] (a backslash), translated, and returns where it ends.
size_t translate_escape(std::string_view pattern, size_t i, bool in_class, std::string& out, const std::string& where) {
  const char c = i + 1 < pattern.size() ? pattern[i + 1] : 0;
  if (c == 's') {
    out += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
    return i + 2;
  }
  if (c == 'S' && !in_class) {
    out += fmt::format("[^{}]", kWhiteSpace);
    return i + 2;
  }
  if (c == 'p' || c == 'P') {
    const size_t end = pattern.find('}', i);
    if (pattern.substr(i + 2, 1) != "{" || end == std::string_view::npos) refuse(where, pattern, pattern.substr(i, 2));
    out += pattern.substr(i, end + 1 - i);
    return end + 1;
  }
  const bool is_simple = c == 'd' || c == 'r' || c == 'n' || c == 't' || (c > 0x20 && c < 0x7f && !std::isalnum(c));
  if (!is_simple) refuse(where, pattern, pattern.substr(i, 2));
  out += pattern.substr(i, 2);
  return i + 2;
}

void check_group(std::string_view pattern, size_t i, const std::string& where) {
  constexpr std::string_view kKnown[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
  const std::string_view rest = pattern.substr(i);
  if (!rest.starts_with("(?") && !rest.starts_with("(*")) return;
  const auto starts = [&](std::string_view known) { return rest.starts_with(known); };
  if (std::none_of(std::begin(kKnown), std::end(kKnown), starts)) refuse(where, pattern, rest.substr(0, 4));
}

}  // namespace

/// `pattern`, already translated, with each category widened to that of Unicode 16.
static std::string add_recent_characters(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size();) {
    const size_t end = pattern.find('}', i);
    const bool is_category = pattern.substr(i, 3) == "\\p{" || pattern.substr(i, 3) == "\\P{";
    if (is_category && !in_class) {
      const char* open = pattern[i + 1] == 'p' ? "[" : "[^";
      const std::string_view name = pattern.substr(i + 3, end - i - 3);
      out += fmt::format("{}\\p{{{}}}{}]", open, name, recent_ranges(name));
      i = end + 1;
    } else if (is_category) {
      out += pattern.substr(i, end + 1 - i);
      if (pattern[i + 1] == 'p') out += recent_ranges(pattern.substr(i + 3, end - i - 3));
      i = end + 1;
    } else if (pattern[i] == '\\') {
      out += pattern.substr(i, 2);
      i += 2;
    } else {
      in_class = (in_class || pattern[i] == '[') && pattern[i] != ']';
      out += pattern[i++];
    }
  }
  return out;
}

std::string translate_pattern(std::string_view pattern, UnicodeClasses classes, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size();) {
    const char c = pattern[i];
    if (c == '\\') {
      i = translate_escape(pattern, i, in_class, out, where);
      continue;
    }
    if (in_class) {
      if (c == '[' || pattern.substr(i, 2) == "&&") refuse(where, pattern, pattern.substr(i, 2));
      if (c == ']') in_class = false;
    } else {
      if (c == '.' || c == '^' || c == '$') refuse(where, pattern, pattern.substr(i, 1));
      if (c == '(') check_group(pattern, i, where);
      const bool is_quantifier = c == '?' || c == '*' || c == '+' || c == '}';
      if (is_quantifier && pattern.substr(i + 1, 1) == "+") refuse(where, pattern, pattern.substr(i, 2));
      if (c == '[') {
        in_class = true;
        if (pattern.substr(i + 1, 1) == "^") out += pattern[i++];
        if (pattern.substr(i + 1, 1) == "]") refuse(where, pattern, pattern.substr(i, 2));
        out += pattern[i++];
        continue;
      }
    }
    out += c;
    ++i;
  }
  return classes == UnicodeClasses::of_unicode_16 ? add_recent_characters(out) : out;
}

Regex::Scratch::Scratch() : data_(pcre2_match_data_create(1, nullptr)) { CHECK(data_, "memory for a match"); }
Regex::Scratch::~Scratch() { pcre2_match_data_free(data_); }

void Regex::Scratch::look_at(std::string_view text) {
  may_hold_recent_ = false;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0xE0) continue;
    // Only these first two bytes begin a recent character. 0xF0 0x9F, left out, is where emoji are.
    const auto second = static_cast<unsigned char>(text[i + 1]);
    may_hold_recent_ |= (lead == 0xE0 && (second == 0xA2 || second == 0xB3 || second == 0xBB)) ||
                        (lead == 0xE1 && second == 0xB2) || (lead == 0xEA && second == 0x9F) ||
                        (lead == 0xF0 && second != 0x9F);
  }
}

static pcre2_code* compile(std::string_view pattern, const std::string& where) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &at, nullptr);
  if (!code) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    throw DataError(fmt::format("{}: pattern \"{}\" is no regular expression: {}.", where, pattern, message));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it (no JIT on this CPU), matching is slower and the same
  return code;
}

Regex::Regex(std::string_view pattern, const std::string& where) : where_(where) {
  if (valid_utf8_prefix(pattern) != pattern.size()) throw DataError(fmt::format("{}: pattern is not UTF-8.", where));
  code_ = compile(translate_pattern(pattern, UnicodeClasses::of_pcre2, where), where);
  recent_code_ = compile(translate_pattern(pattern, UnicodeClasses::of_unicode_16, where), where);
}

Regex::Regex(Regex&& other) noexcept
    : where_(std::move(other.where_)),
      code_(std::exchange(other.code_, nullptr)),
      recent_code_(std::exchange(other.recent_code_, nullptr)) {}

Regex::~Regex() {
  pcre2_code_free(code_);
  pcre2_code_free(recent_code_);
}

/// Matches by the interpreter, whose stack is on the heap. Sane patterns take a few steps a byte, and go back over what
/// they took; a hostile one would try its ways for ever.
static int match_slowly(const pcre2_code* code, std::string_view text, size_t start, uint32_t options,
                        pcre2_match_data* data) {
  constexpr size_t kMostSteps = 20'000'000, kMostKibibytes = size_t{1} << 18;
  const auto limited = [](size_t n) { return static_cast<uint32_t>(std::min<size_t>(n, UINT32_MAX)); };
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  CHECK(context, "memory for a match");
  pcre2_set_match_limit(context, limited(kMostSteps + 16 * text.size()));
  pcre2_set_depth_limit(context, UINT32_MAX);
  pcre2_set_heap_limit(context, limited(kMostKibibytes + text.size()));
  const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                                 options | PCRE2_NO_JIT, data, context);
  pcre2_match_context_free(context);
  return result;
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t start, Scratch& scratch) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // The caller checked the encoding; checking here again would make a long text quadratic.
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  const pcre2_code* code = scratch.may_hold_recent_ ? recent_code_ : code_;
  int result = pcre2_match(code, subject, text.size(), start, kOptions, scratch.data_, nullptr);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT || result == PCRE2_ERROR_MATCHLIMIT) {
    result = match_slowly(code, text, start, kOptions, scratch.data_);
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_HEAPLIMIT) {
    throw DataError(
        fmt::format("{}: a pattern tries too many ways to match a text of {} bytes.\n"
                    "  Fix: take a tokenizer whose patterns have no repetition inside another, as (a+)+ has.",
                    where_, text.size()));
  }
  CHECK(result >= 0, "pcre2_match failed with {} on a text of {} bytes", result, text.size());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data_);
  return Match{.begin = bounds[0], .end = bounds[1]};
}

}  // namespace data
