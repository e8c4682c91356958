#include "checkpoint/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/tensor_row.h"

namespace checkpoint {

using parallel::Range;
using tensor::Shape;

namespace {

using Json = nlohmann::json;

class Check {
 public:
  Check(const Index& index, const std::string& place) : index_(index), place_(place) {}

  void places() const {
    for (const StoredFragment& stored : index_.fragments) check_place(stored);
  }

  /// Of fragments in their places.
  void coverage() const {
    std::vector<std::vector<const Fragment*>> of_tensor(index_.tensors.size());
    for (const StoredFragment& stored : index_.fragments) {
      const Fragment& fragment = stored.fragment;
      if (fragment.numel() > 0) of_tensor[static_cast<size_t>(fragment.tensor)].push_back(&fragment);
    }
    for (size_t i = 0; i < of_tensor.size(); ++i) {
      check_no_overlap(index_.tensors[i], of_tensor[i]);  // so the sum is at most numel
      int64_t found = 0;
      for (const Fragment* fragment : of_tensor[i]) found += fragment->numel();
      const TensorInfo& info = index_.tensors[i];
      require(found == info.shape.numel(), "of \"{}\" {} there are {} elements", info.name, info.shape.str(), found);
    }
  }

 private:
  template <class... Args>
  void require(bool is_ok, const char* what, const Args&... args) const {
    if (is_ok) return;
    const std::string why = fmt::format(fmt::runtime(what), args...);
    throw DamagedError(fmt::format("{}: this checkpoint is damaged, or none: {}.", place_, why));
  }

  void check_place(const StoredFragment& stored) const {
    const Fragment& f = stored.fragment;
    require(0 <= f.tensor && f.tensor < std::ssize(index_.tensors), "a fragment is of no tensor");
    require(0 <= stored.file && stored.file < std::ssize(index_.files), "a fragment is in no file");
    const Box whole = whole_box(index_.tensors[static_cast<size_t>(f.tensor)].shape);
    const auto lies_in = [](int64_t first, int64_t count, int64_t all) {
      return first >= 0 && count >= 0 && first <= all && count <= all - first;
    };
    require(lies_in(f.box.first_row, f.box.num_rows, whole.num_rows) &&
                lies_in(f.box.first_column, f.box.num_columns, whole.num_columns) && 0 <= f.range.begin &&
                f.range.begin <= f.range.end && f.range.end <= f.box.numel(),
            "a fragment lies outside of \"{}\"", index_.tensors[static_cast<size_t>(f.tensor)].name);
    const int64_t bytes = f.numel() * element_bytes(index_, f);
    require(lies_in(stored.offset, bytes, index_.files[static_cast<size_t>(stored.file)].bytes),
            "a fragment lies outside of its file");
    require(lies_in(stored.first_block, num_blocks(index_, f), std::ssize(index_.block_hashes)),
            "a fragment has no hash");
  }

  using Fragments = std::vector<const Fragment*>;

  /// Fragments of boxes over the same columns lie in one line, where neighbours are compared; lines of boxes over other
  /// columns that cross are compared row by row.
  void check_no_overlap(const TensorInfo& info, const Fragments& fragments) const {
    std::map<std::pair<int64_t, int64_t>, Fragments> lines;
    for (const Fragment* f : fragments) lines[{f->box.first_column, f->box.num_columns}].push_back(f);
    for (auto& [columns, line] : lines) {
      std::sort(line.begin(), line.end(),
                [](const Fragment* a, const Fragment* b) { return begin_of(*a) < begin_of(*b); });
      for (size_t i = 1; i < line.size(); ++i) require_apart(info, *line[i - 1], *line[i]);
    }
    for (auto a = lines.begin(); a != lines.end(); ++a) {
      const int64_t end = a->first.first + a->first.second;
      for (auto b = std::next(a); b != lines.end() && b->first.first < end; ++b) {
        require_lines_apart(info, a->second, b->second);
      }
    }
  }

  /// Both in order of rows.
  void require_lines_apart(const TensorInfo& info, const Fragments& a, const Fragments& b) const {
    auto first = b.begin();
    for (const Fragment* fragment : a) {
      const Range rows = detail::rows_of(*fragment);
      while (first != b.end() && detail::rows_of(**first).end <= rows.begin) ++first;
      for (auto other = first; other != b.end() && detail::rows_of(**other).begin < rows.end; ++other) {
        require_apart(info, *fragment, **other);
      }
    }
  }

  void require_apart(const TensorInfo& info, const Fragment& a, const Fragment& b) const {
    require(overlap(a, b) == 0, "\"{}\" has elements twice", info.name);
  }

  /// In the line of all boxes over these columns.
  static int64_t begin_of(const Fragment& f) { return f.box.first_row * f.box.num_columns + f.range.begin; }

  const Index& index_;
  const std::string& place_;
};

}  // namespace

int64_t element_bytes(const Index& index, const Fragment& fragment) {
  return tensor::size_of(index.tensors[static_cast<size_t>(fragment.tensor)].dtype);
}

int64_t num_blocks(const Index& index, const Fragment& fragment) {
  const int64_t bytes = fragment.numel() * element_bytes(index, fragment);
  return bytes / index.block_bytes + (bytes % index.block_bytes > 0 ? 1 : 0);
}

Box whole_box(const Shape& shape) {
  const int64_t rows = shape[0];
  return {.first_row = 0, .num_rows = rows, .first_column = 0, .num_columns = rows == 0 ? 0 : shape.numel() / rows};
}

void check_places(const Index& index, const std::string& place) { Check(index, place).places(); }

void check_index(const Index& index, const std::string& place) {
  check_places(index, place);
  Check(index, place).coverage();
}

// ---- on the wire

std::vector<int64_t> encode_numbers(const Index& index) {
  std::vector<int64_t> numbers = {std::ssize(index.fragments), std::ssize(index.block_hashes), index.block_bytes};
  for (const StoredFragment& stored : index.fragments) {
    const Fragment& f = stored.fragment;
    numbers.insert(numbers.end(), {f.tensor, f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                                   f.range.begin, f.range.end, stored.file, stored.offset, stored.first_block});
  }
  for (const uint64_t hash : index.block_hashes) numbers.push_back(static_cast<int64_t>(hash));
  return numbers;
}

std::string encode_text(const Index& index) {
  const Progress& progress = index.info.progress;
  Json json = {{"step", progress.step},
               {"samples", progress.samples},
               {"tokens", progress.tokens},
               {"seed", progress.seed},
               {"config", index.info.config_text},
               {"build_id", index.info.build_id},
               {"tensors", Json::array()},
               {"files", Json::array()}};
  for (const TensorInfo& info : index.tensors) json["tensors"].push_back(to_row(info));
  for (const ShardFile& file : index.files) json["files"].push_back({file.path, file.bytes});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Index decode_index(const std::vector<int64_t>& numbers, const std::string& text) {
  const Json json = Json::parse(text);
  Index index;
  index.info.progress = {json["step"], json["samples"], json["tokens"], json["seed"]};
  index.info.config_text = json["config"];
  index.info.build_id = json["build_id"];
  for (const Json& row : json["tensors"]) index.tensors.push_back(from_row(row));
  for (const Json& file : json["files"]) index.files.push_back({file[0], file[1]});
  auto next = numbers.begin() + 3;
  for (int64_t i = 0; i < numbers[0]; ++i, next += 10) {
    index.fragments.push_back(
        {.fragment = {.tensor = next[0], .box = {next[1], next[2], next[3], next[4]}, .range = {next[5], next[6]}},
         .file = next[7],
         .offset = next[8],
         .first_block = next[9]});
  }
  for (int64_t i = 0; i < numbers[1]; ++i) index.block_hashes.push_back(static_cast<uint64_t>(*next++));
  index.block_bytes = numbers[2];
  return index;
}

}  // namespace checkpoint
