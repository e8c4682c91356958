#include "trainer/trace_file.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/file.h"

namespace trainer {

using parallel::Event;
using parallel::EventClock;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kPartExtension = ".part";

/// Rows of a rank in the viewer.
enum class Row { passes, communication };

/// Microseconds since 1970 by this machine's clock, so that the ranks of several nodes lie side by side.
double microseconds(EventClock::time_point time) {
  using std::chrono::system_clock;
  static const auto offset = system_clock::now().time_since_epoch() - EventClock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(time.time_since_epoch() + offset).count();
}

Json metadata(const char* what, int rank, Row row, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", static_cast<int>(row)}, {"args", {{"name", name}}}};
}

}  // namespace

TraceFile::TraceFile(std::string folder, const RankContext& context) : folder_(std::move(folder)), context_(context) {
  if (context.is_root()) clear_folder();
  context.world().barrier();
  part_.open(part_path(context.rank()), std::ios::trunc);
  if (!part_) fail(part_path(context.rank()));
  write_header();
}

/// Where anything here fails, so does opening the parts.
void TraceFile::clear_folder() const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (entry.path().extension() == kPartExtension) std::filesystem::remove(entry.path(), error);
  }
}

std::string TraceFile::part_path(int rank) const {
  return fmt::format("{}/rank_{:05}{}", folder_, rank, kPartExtension);
}

void TraceFile::fail(const std::string& path) const {
  throw tensor::StorageError(
      fmt::format("{}: the trace cannot be written: {}.\n  Fix: free space there, or set log.trace = false.", path,
                  checkpoint::errno_text(errno)));
}

void TraceFile::write_header() {
  const int rank = context_.rank();
  const parallel::Coordinates at = context_.mesh().coordinates(rank);
  using parallel::Axis;
  const std::string place = fmt::format("rank {} (tp {}, dp_in {}, pp {}, dp_out {})", rank, at[Axis::tp],
                                        at[Axis::dp_in], at[Axis::pp], at[Axis::dp_out]);
  part_ << metadata("process_name", rank, Row::passes, place).dump() << '\n'
        << metadata("thread_name", rank, Row::passes, "passes").dump() << '\n'
        << metadata("thread_name", rank, Row::communication, "communication").dump() << '\n';
}

void TraceFile::write_step(int64_t step) {
  for (const Event& event : context_.events()->take()) {
    const Row row = event.kind == Event::Kind::pass ? Row::passes : Row::communication;
    const double begin = microseconds(event.begin);
    part_ << Json{{"name", event.name},
                  {"cat", event.category},
                  {"ph", "X"},
                  {"ts", begin},
                  {"dur", microseconds(event.end) - begin},
                  {"pid", context_.rank()},
                  {"tid", static_cast<int>(row)},
                  {"args", {{"step", step}, {"group", row == Row::passes ? "" : event.category}}}}
                 .dump()
          << '\n';
  }
  part_.flush();
  if (!part_) fail(part_path(context_.rank()));
}

void TraceFile::join() {
  part_.close();
  context_.world().barrier();
  if (context_.is_root()) copy_parts();
  context_.world().barrier();
}

void TraceFile::copy_parts() {
  const std::string path = folder_ + "/trace.json";
  std::ofstream whole(path, std::ios::trunc);
  whole << "{\"traceEvents\": [\n";
  const char* separator = "";
  for (int rank = 0; rank < context_.mesh().world_size(); ++rank) {
    std::ifstream part(part_path(rank));
    for (std::string line; std::getline(part, line);) {
      whole << separator << line;
      separator = ",\n";
    }
    std::filesystem::remove(part_path(rank));
  }
  whole << "\n]}\n";
  whole.flush();
  if (!whole) fail(path);
}

}  // namespace trainer
