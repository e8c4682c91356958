#include "trainer/toml_precheck.h"

#include <string_view>

#include "tensor/error.h"

namespace trainer {
namespace {

[[noreturn]] void refuse(const std::string& origin, int64_t line, const std::string& message) {
  throw tensor::ConfigError(fmt::format("{}:{}: {}", origin, line, message));
}

/// Bytes of the UTF-8 character at the start of `text`; 0 where it is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool is_surrogate = first == 0xED && byte(1) >= 0xA0;
    return continues(1) && continues(2) && !is_overlong && !is_surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool is_overlong = first == 0xF0 && byte(1) < 0x90;
    const bool is_too_large = first == 0xF4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !is_overlong && !is_too_large ? 4 : 0;
  }
  return 0;
}

void check_bytes(const std::string& text, const std::string& origin) {
  int64_t line = 1;
  size_t line_begin = 0;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(std::string_view(text).substr(i));
    const bool is_control = (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
    if (length == 0 || is_control) {
      refuse(origin, line,
             fmt::format("byte 0x{:02x} at offset {} is not text.\n  A config is TOML, in UTF-8.\n"
                         "  Fix: give the path of a config (.toml); token files and checkpoints are named inside it.",
                         byte, i));
    }
    i += length;
    if (byte == '\n') {
      ++line;
      line_begin = i;
    }
    if (i - line_begin > kMaxConfigLine) {
      refuse(origin, line,
             fmt::format("the line is longer than {} bytes.\n"
                         "  Fix: give the path of a config (.toml); write a long list over several lines.",
                         kMaxConfigLine));
    }
  }
}

/// Walks over brackets, separators and dots that are outside of strings and comments.
class StructureCheck {
 public:
  StructureCheck(const std::string& text, const std::string& origin) : text_(text), origin_(origin) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        skip_until_newline();
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else {
        count(c);
        ++at_;
      }
    }
  }

 private:
  void count(char c) {
    if (c == '\n') ++line_;
    if (c == '[' || c == '{') ++depth_;
    if ((c == ']' || c == '}') && depth_ > 0) --depth_;
    const bool separates = c == '=' || c == ',' || c == '[' || c == '{';
    if (separates) ++num_values_;
    if (separates || c == '\n') num_dots_ = 0;
    if (c == '.') ++num_dots_;
    check_caps();
  }

  void check_caps() const {
    if (depth_ > kMaxConfigNesting || num_dots_ > kMaxConfigNesting) {
      refuse(origin_, line_,
             fmt::format("nested deeper than {} levels.\n  No key of a config needs that.\n"
                         "  Fix: close the brackets, or look at where this file comes from.",
                         kMaxConfigNesting));
    }
    if (num_values_ > kMaxConfigValues) {
      refuse(origin_, line_,
             fmt::format("more than {} values.\n  A config has a few dozen; data belongs into token files.\n"
                         "  Fix: make token files by 'trainer data build' and name them in data.train.",
                         kMaxConfigValues));
    }
  }

  void skip_until_newline() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  /// A string of one line ends at its newline at the latest: what follows is then counted, never hidden.
  void skip_string(char quote) {
    const std::string fence(3, quote);
    const bool is_multi_line = text_.compare(at_, 3, fence) == 0;
    at_ += is_multi_line ? 3 : 1;
    while (at_ < text_.size()) {
      if (quote == '"' && text_[at_] == '\\') {
        at_ += at_ + 1 < text_.size() && text_[at_ + 1] != '\n' ? 2 : 1;
      } else if (is_multi_line && text_.compare(at_, 3, fence) == 0) {
        at_ += 3;
        for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
        return;
      } else if (!is_multi_line && (text_[at_] == quote || text_[at_] == '\n')) {
        if (text_[at_] == quote) ++at_;
        return;
      } else {
        if (text_[at_] == '\n') ++line_;
        ++at_;
      }
    }
  }

  const std::string& text_;
  const std::string& origin_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int depth_ = 0, num_dots_ = 0, num_values_ = 0;
};

}  // namespace

void precheck_toml(const std::string& text, const std::string& origin) {
  if (text.size() > kMaxConfigBytes) {
    refuse(origin, 1,
           fmt::format("larger than {} bytes, the most a config may have.\n"
                       "  Fix: give the path of a config (.toml); token files are named inside it.",
                       kMaxConfigBytes));
  }
  check_bytes(text, origin);
  StructureCheck(text, origin).run();
}

}  // namespace trainer
