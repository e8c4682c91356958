#include "checkpoint/difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <vector>

#include "checkpoint/format.h"

namespace checkpoint {
namespace {

constexpr size_t kMaxLines = 8;

using ByName = std::map<std::string_view, const TensorInfo*>;

std::string describe(const TensorInfo& info) {
  return fmt::format("{} {}", info.shape.str(), tensor::to_string(info.dtype));
}

/// Names come from a file: control bytes would reach the terminal.
std::string printable(std::string_view name) {
  std::string text(name);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

/// Largest n + 1 of the names that contain "layers.n."; 0 where none does.
int64_t count_layers(const ByName& tensors) {
  int64_t count = 0;
  for (const auto& [name, info] : tensors) {
    constexpr std::string_view kLayers = "layers.";
    const size_t at = name.find(kLayers);
    if (at == std::string_view::npos) continue;
    int64_t layer_index = 0;
    const char* begin = name.data() + at + kLayers.size();
    if (std::from_chars(begin, name.data() + name.size(), layer_index).ec == std::errc()) {
      count = std::max(count, layer_index + 1);
    }
  }
  return count;
}

std::vector<std::string> list_differences(const ByName& stored, const ByName& wanted) {
  std::vector<std::string> lines;
  for (const auto& [name, info] : wanted) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      lines.push_back(fmt::format("it lacks \"{}\" {}.", name, describe(*info)));
    } else if (found->second->shape != info->shape || found->second->dtype != info->dtype) {
      lines.push_back(
          fmt::format("\"{}\" is {} there and {} in this run.", name, describe(*found->second), describe(*info)));
    }
  }
  for (const auto& [name, info] : stored) {
    if (!wanted.contains(name)) {
      lines.push_back(
          fmt::format("it has \"{}\" {}, which this run has no place for.", printable(name), describe(*info)));
    }
  }
  // what the optimizer keeps only repeats the shapes of the weights
  std::ranges::stable_partition(lines,
                                [](const std::string& line) { return line.find("\"weights/") != std::string::npos; });
  return lines;
}

std::string explain(const ByName& stored, const ByName& wanted) {
  const int64_t stored_layers = count_layers(stored);
  const int64_t wanted_layers = count_layers(wanted);
  if (stored_layers != wanted_layers) {
    return fmt::format(
        "  It was written by a model with num_layers = {}; this one has {}.\n"
        "  Fix: set model.num_layers = {}, or start a new run in another run.dir.",
        stored_layers, wanted_layers, stored_layers);
  }
  return fmt::format(
      "  It was written by a model of other sizes, another precision or another optimizer; the config it had is "
      "inside:\n"
      "  h5dump -d {} FILE\n"
      "  Fix: use the tables [model], [precision] and [optimizer] of that config, or start a new run in "
      "another run.dir.",
      format::kConfigText);
}

void refuse_differences(const std::string& path, std::span<const TensorInfo> stored,
                        std::span<const TensorInfo> wanted) {
  ByName stored_by_name, wanted_by_name;
  for (const TensorInfo& info : stored) stored_by_name[info.name] = &info;
  for (const TensorInfo& info : wanted) wanted_by_name[info.name] = &info;
  const std::vector<std::string> lines = list_differences(stored_by_name, wanted_by_name);
  if (lines.empty()) return;
  std::string message = fmt::format("{}: this checkpoint does not fit this run:\n", path);
  for (size_t i = 0; i < std::min(lines.size(), kMaxLines); ++i) message += "  " + lines[i] + "\n";
  if (lines.size() > kMaxLines) message += fmt::format("  ... and {} more.\n", lines.size() - kMaxLines);
  throw tensor::CheckpointError(message + explain(stored_by_name, wanted_by_name));
}

}  // namespace

void require_same_tensors(const std::string& path, std::span<const TensorInfo> stored,
                          std::span<const NamedTensor> wanted) {
  std::vector<TensorInfo> wanted_infos;
  for (const NamedTensor& named : wanted) {
    CHECK(named.tensor != nullptr && *named.tensor, "\"{}\" has a tensor to load", named.name);
    wanted_infos.push_back({named.name, named.tensor->dtype(), named.tensor->shape()});
  }
  refuse_differences(path, stored, wanted_infos);
}

void require_same_tensors(const std::string& path, std::span<const TensorInfo> stored,
                          std::span<const TensorInfo> wanted) {
  const auto is_float = [](tensor::Dtype dtype) {
    return dtype == tensor::Dtype::fp32 || dtype == tensor::Dtype::fp64;
  };
  std::vector<TensorInfo> alike(stored.begin(), stored.end());
  for (TensorInfo& info : alike) {
    if (is_float(info.dtype)) info.dtype = tensor::Dtype::fp32;
  }
  std::vector<TensorInfo> wanted_alike(wanted.begin(), wanted.end());
  for (TensorInfo& info : wanted_alike) {
    if (is_float(info.dtype)) info.dtype = tensor::Dtype::fp32;
  }
  refuse_differences(path, alike, wanted_alike);
}

}  // namespace checkpoint
