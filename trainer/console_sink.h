#pragma once
/// spdlog's way to a stream on which a live line may stand below the messages.

#include <spdlog/sinks/base_sink.h>

#include <cstdio>
#include <mutex>
#include <string>

namespace trainer {

class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ConsoleSink(std::FILE* stream);  ///< not owned; null: writes nothing

  bool is_terminal() const { return is_terminal_; }
  int width() const;
  void show_live(const std::string& line);

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override;

 private:
  void print(const std::string& text);

  std::FILE* stream_;
  bool is_terminal_;
  std::string live_line_;
};

}  // namespace trainer
