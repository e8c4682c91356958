#include "trainer/metrics.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tensor/error.h"

namespace trainer {
namespace {

std::optional<int64_t> step_of(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return {};
  return object["step"].get<int64_t>();
}

/// Size of the file up to the end of its last whole line with a step <= last_step.
int64_t bytes_to_keep(const std::string& path, int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  int64_t keep = 0;
  int64_t end = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {  // at eof the line had no end
    end += std::ssize(line) + 1;
    const std::optional<int64_t> step = step_of(line);
    if (step && *step > last_step) break;
    if (step) keep = end;
  }
  return keep;
}

class LineBuilder {
 public:
  void add(const std::string& name, int64_t value) { line_[name] = value; }
  void add(const std::string& name, double value) {
    if (std::isfinite(value)) {
      line_[name] = value;
      return;
    }
    line_[name] = nullptr;
    non_finite_[name] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  std::string text() {
    if (!non_finite_.empty()) line_["non_finite"] = non_finite_;
    return line_.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

 private:
  nlohmann::ordered_json line_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json non_finite_ = nlohmann::ordered_json::object();
};

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  LineBuilder line;
  line.add("step", metrics.step);
  line.add("samples", metrics.samples);
  line.add("tokens", metrics.tokens);
  line.add("loss", metrics.loss);
  line.add("grad_norm", metrics.grad_norm);
  line.add("lr", metrics.lr);
  line.add("tokens_per_second", metrics.tokens_per_second);
  line.add("step_ms", metrics.step_ms);
  line.add("mfu", metrics.mfu);
  line.add("memory_bytes", metrics.memory_bytes);
  for (const auto& [name, value] : metrics.extra) line.add(name, value);
  return line.text();
}

MetricsWriter::MetricsWriter(std::string path, int64_t last_step) : path_(std::move(path)) {
  fd_ = checkpoint::FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (fd_.get() < 0) fail("the metrics cannot be opened", errno);
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) fail("the metrics cannot be examined", errno);
  if (!S_ISREG(status.st_mode)) return;  // a device or pipe has no past
  if (::ftruncate(fd_.get(), bytes_to_keep(path_, last_step)) != 0) fail("later metrics cannot be cut off", errno);
}

void MetricsWriter::write(const StepMetrics& metrics) {
  const std::string line = to_json_line(metrics) + "\n";
  ssize_t count = 0;
  do {
    count = ::write(fd_.get(), line.data(), line.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) fail(fmt::format("the metrics of step {} cannot be written", metrics.step), errno);
  if (count < std::ssize(line)) fail(fmt::format("the metrics of step {} were cut short", metrics.step), ENOSPC);
}

void MetricsWriter::sync() {
  // pipes and some network file systems have nothing to sync
  if (::fdatasync(fd_.get()) != 0 && errno != EINVAL) fail("the metrics did not reach the disk", errno);
}

void MetricsWriter::fail(const std::string& what, int error) const {
  throw tensor::StorageError(
      fmt::format("{}: {}: {}.\n  Fix: free space there, or set run.dir to a folder that you may "
                  "write.",
                  path_, what, checkpoint::errno_text(error)));
}

}  // namespace trainer
