#pragma once
/// Every failure that ends the program. The lowest folder owns these, so that all others can throw them.
///
/// A message says where, what (with the numbers), why, and how to fix. Whoever can be blamed decides the type:
/// the user's config, layout, data or files: one of the named errors; our own broken promise: CHECK.

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace tensor {

/// What the process tells the shell. Ending early is never 0.
enum class ExitCode : int {
  finished = 0,
  config = 2,  ///< usage or config
  layout = 3,  ///< layout or launch
  data = 4,
  checkpoint = 5,  ///< checkpoint unusable
  storage = 6,     ///< disk full, read-only, I/O error
  numerics = 7,
  peer_lost = 8,  ///< a peer was lost or hung
  internal = 70,
  run_again = 75,  ///< saved after a signal or time limit
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using ConfigError = ErrorOf<ExitCode::config>;
using LayoutError = ErrorOf<ExitCode::layout>;
using DataError = ErrorOf<ExitCode::data>;
using CheckpointError = ErrorOf<ExitCode::checkpoint>;
using StorageError = ErrorOf<ExitCode::storage>;
using NumericsError = ErrorOf<ExitCode::numerics>;
using InternalError = ErrorOf<ExitCode::internal>;

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& why);

}  // namespace tensor

/// A promise of our own code. Never for input: `CHECK(dx.shape() == x.shape(), "dx has the shape of x")`.
/// Further arguments format the reason: `CHECK(n > 0, "n = {} must be positive", n)`.
#define CHECK(condition, ...)                                                                             \
  do {                                                                                                    \
    if (!(condition)) ::tensor::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
