#pragma once
/// Regular expressions of a tokenizer.json, run by PCRE2 so that they match what the `tokenizers` package matches with
/// Oniguruma, whose tables are those of Unicode 16, whatever version of PCRE2 is installed. Only syntax that means the
/// same to both is accepted.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

// As pcre2.h names them; that header is for regex.cpp alone.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace data {

class Regex {
 public:
  struct Match {
    size_t begin, end;
  };
  /// Room for the result of a match: one per thread.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    /// Call before matching in `text` or a part of it.
    void look_at(std::string_view text);

   private:
    friend class Regex;
    pcre2_real_match_data_8* data_;
    bool may_hold_recent_ = true;  ///< characters younger than the Unicode version of old PCRE2 libraries
  };

  /// `where` begins the message of the DataError thrown for a pattern that cannot be used.
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&&) = delete;

  /// The first match at or after `start` that is not empty. `text` must be valid UTF-8, `start` on a character.
  /// DataError where the pattern tries too many ways to match it.
  std::optional<Match> find(std::string_view text, size_t start, Scratch& scratch) const;

 private:
  std::string where_;
  pcre2_real_code_8* code_;
  pcre2_real_code_8* recent_code_;  ///< knows the letters, marks and numbers of Unicode 15 and 16; slower
};

enum class UnicodeClasses { of_pcre2, of_unicode_16 };

/// The pattern for PCRE2. Throws DataError for syntax that the two engines read differently.
std::string translate_pattern(std::string_view pattern, UnicodeClasses classes, const std::string& where);

}  // namespace data
