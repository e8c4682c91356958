#pragma once
/// What a run tells people: on the console, and with dates in log.txt of the run's folder. An object that is handed
/// around; nothing here is global.
///
/// Control bytes in messages (terminal codes in a file's name) are escaped, line ends kept. On a terminal one live line
/// may stand at the bottom; messages appear above it.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace trainer {

class ConsoleSink;

/// Who speaks. Alone in the world, a rank needs no name.
struct Speaker {
  int rank = 0;
  int world_size = 1;
  std::string node;
};

struct LogOptions {
  std::string file;              ///< log.txt, appended to; empty: no file. One rank writes it
  std::FILE* console = nullptr;  ///< not owned; null: no console
  Speaker speaker = {};          ///< ranks other than 0 say only warnings and errors on the console
};

class Log {
 public:
  /// StorageError where the file cannot be opened.
  explicit Log(const LogOptions& options);
  ~Log();
  Log(const Log&) = delete;

  void info(const std::string& message);     ///< "message"
  void warn(const std::string& message);     ///< "warning: message"
  void error(const std::string& message);    ///< "error: message"
  void to_file(const std::string& message);  ///< not on the console

  /// From now on in the prefix "[rank 5/8, node n02, step 1200] " of warnings and errors.
  void set_step(int64_t step);
  std::string prefix() const;  ///< empty where world_size is 1

  bool has_terminal() const;   ///< the console is one, and this rank speaks there
  int terminal_width() const;  ///< columns; 80 where unknown
  /// Replaces the live line; empty removes it. Nothing where there is no terminal.
  void show_live(const std::string& line);

 private:
  Speaker speaker_;
  int64_t step_ = 0;
  std::shared_ptr<ConsoleSink> console_sink_;
  std::unique_ptr<spdlog::logger> console_;
  std::unique_ptr<spdlog::logger> file_;  // without sinks where there is no file
};

}  // namespace trainer
