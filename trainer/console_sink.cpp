#include "trainer/console_sink.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace trainer {
namespace {

constexpr int kUnknownWidth = 80;
constexpr const char* kClearLine = "\r\x1b[K";  // to column 0, erase to the right

}  // namespace

ConsoleSink::ConsoleSink(std::FILE* stream)
    : stream_(stream), is_terminal_(stream != nullptr && ::isatty(::fileno(stream)) == 1) {}

int ConsoleSink::width() const {
  winsize size{};
  const bool is_known = is_terminal_ && ::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUnknownWidth;
}

void ConsoleSink::show_live(const std::string& line) {
  if (!is_terminal_) return;
  const std::lock_guard lock(mutex_);
  if (line.empty() && live_line_.empty()) return;
  live_line_ = line;
  print(kClearLine + line);
}

void ConsoleSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t formatted;
  formatter_->format(message, formatted);
  const std::string text(formatted.data(), formatted.size());
  print(live_line_.empty() ? text : kClearLine + text + live_line_);
}

void ConsoleSink::flush_() {}

void ConsoleSink::print(const std::string& text) {
  // one call: lines of several ranks on one terminal stay whole. A console that is gone is no reason to stop training.
  if (stream_ == nullptr) return;
  (void)std::fwrite(text.data(), 1, text.size(), stream_);
  (void)std::fflush(stream_);
}

}  // namespace trainer
