#pragma once
/// A terminal of given width that remembers what was shown on it; and what a stream holds.

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace tests {

class PseudoTerminal {
 public:
  explicit PseudoTerminal(int width) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) throw std::runtime_error("no terminal");
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    stream_ = ::fdopen(slave, "w");
    winsize size{};
    size.ws_col = static_cast<unsigned short>(width);
    ::ioctl(slave, TIOCSWINSZ, &size);
  }
  ~PseudoTerminal() {
    std::fclose(stream_);
    ::close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;

  std::FILE* stream() const { return stream_; }
  /// Everything since the last call. The kernel hands it on in its own time and in parts: it is all there when nothing
  /// more comes for a while.
  std::string shown() const {
    constexpr int kWhileMs = 50;
    std::string text;
    pollfd readable{.fd = master_, .events = POLLIN, .revents = 0};
    while (::poll(&readable, 1, kWhileMs) > 0) {
      std::string part(1 << 12, '\0');
      const ssize_t count = ::read(master_, part.data(), part.size());
      if (count <= 0) break;
      text.append(part, 0, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int master_;
  std::FILE* stream_;
};

/// All that was written to a temporary stream, which is closed.
inline std::string read_stream(std::FILE* stream) {
  std::string text;
  std::rewind(stream);
  for (int c = std::fgetc(stream); c != EOF; c = std::fgetc(stream)) text += static_cast<char>(c);
  std::fclose(stream);
  return text;
}

}  // namespace tests
