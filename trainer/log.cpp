#include "trainer/log.h"

#include <fmt/core.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include "tensor/error.h"
#include "trainer/console_sink.h"
#include "trainer/printable.h"

namespace trainer {
namespace {

/// Only the first rank tells how things go; the others would say the same.
bool speaks_on_console(const LogOptions& options) { return options.console != nullptr && options.speaker.rank == 0; }

std::unique_ptr<spdlog::logger> console_logger(const LogOptions& options, spdlog::sink_ptr sink) {
  auto logger = std::make_unique<spdlog::logger>("console", std::move(sink));
  logger->set_pattern("%v");
  logger->set_level(speaks_on_console(options) ? spdlog::level::info : spdlog::level::warn);
  return logger;
}

std::unique_ptr<spdlog::logger> file_logger(const std::string& path) {
  auto logger = std::make_unique<spdlog::logger>("file");
  if (path.empty()) return logger;
  try {
    logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  } catch (const spdlog::spdlog_ex& error) {
    throw tensor::StorageError(fmt::format(
        "{}: the log cannot be opened: {}.\n  Fix: set run.dir to a folder that you may write.", path, error.what()));
  }
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
  logger->flush_on(spdlog::level::info);
  return logger;
}

}  // namespace

Log::Log(const LogOptions& options)
    : speaker_(options.speaker),
      console_sink_(std::make_shared<ConsoleSink>(options.console)),
      console_(console_logger(options, console_sink_)),
      file_(file_logger(options.file)) {
  // a log on a full disk must not end the run; once is enough
  file_->set_error_handler([this, is_first = true](const std::string& reason) mutable {
    if (std::exchange(is_first, false)) console_->warn("warning: log.txt cannot be written: {}", reason);
  });
}

Log::~Log() { show_live(""); }

void Log::info(const std::string& message) {
  const std::string text = printable_lines(message);
  console_->info(text);
  file_->info(text);
}

void Log::warn(const std::string& message) {
  const std::string text = prefix() + "warning: " + printable_lines(message);
  console_->warn(text);
  file_->warn(text);
}

void Log::error(const std::string& message) {
  const std::string text = prefix() + "error: " + printable_lines(message);
  console_->error(text);
  file_->error(text);
}

void Log::to_file(const std::string& message) { file_->info(printable_lines(message)); }

void Log::set_step(int64_t step) { step_ = step; }

std::string Log::prefix() const {
  if (speaker_.world_size == 1) return "";
  return fmt::format("[rank {}/{}, node {}, step {}] ", speaker_.rank, speaker_.world_size, speaker_.node, step_);
}

bool Log::has_terminal() const { return console_sink_->is_terminal() && speaker_.rank == 0; }

int Log::terminal_width() const { return console_sink_->width(); }

void Log::show_live(const std::string& line) {
  if (has_terminal()) console_sink_->show_live(printable_lines(line));
}

}  // namespace trainer
