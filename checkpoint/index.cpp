#include "checkpoint/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace checkpoint {

using parallel::Range;
using tensor::Dtype;
using tensor::Shape;

namespace {

using Json = nlohmann::json;

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int dim = 0; dim < shape.num_dims(); ++dim) sizes.push_back(shape[dim]);
  return sizes;
}

Shape shape_of(const std::vector<int64_t>& sizes) {
  switch (sizes.size()) {
    case 1:
      return {sizes[0]};
    case 2:
      return {sizes[0], sizes[1]};
    case 3:
      return {sizes[0], sizes[1], sizes[2]};
    default:
      return {sizes.at(0), sizes.at(1), sizes.at(2), sizes.at(3)};
  }
}

class Check {
 public:
  Check(const Index& index, const std::string& place) : index_(index), place_(place) {}

  void run() const {
    std::vector<int64_t> found(index_.tensors.size(), 0);
    for (const StoredFragment& stored : index_.fragments) {
      check_place(stored);
      found[static_cast<size_t>(stored.fragment.tensor)] += stored.fragment.numel();
    }
    for (size_t i = 0; i < found.size(); ++i) {
      const TensorInfo& info = index_.tensors[i];
      require(found[i] == info.shape.numel(), "\"{}\" {} has {} elements", info.name, info.shape.str(), found[i]);
    }
    check_no_overlap();
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
                lies_in(f.box.first_column, f.box.num_columns, whole.num_columns) &&
                lies_in(f.range.begin, f.range.end - f.range.begin, f.box.numel()) && f.range.begin <= f.range.end,
            "a fragment lies outside of \"{}\"", index_.tensors[static_cast<size_t>(f.tensor)].name);
    const int64_t bytes = f.numel() * element_bytes(index_, f);
    require(lies_in(stored.offset, bytes, index_.files[static_cast<size_t>(stored.file)].bytes),
            "a fragment lies outside of its file");
    require(lies_in(stored.first_block, num_blocks(index_, f), std::ssize(index_.block_hashes)),
            "a fragment has no hash");
  }

  void check_no_overlap() const {
    std::map<int64_t, std::vector<const Fragment*>> by_tensor;
    for (const StoredFragment& stored : index_.fragments) by_tensor[stored.fragment.tensor].push_back(&stored.fragment);
    for (auto& [tensor, fragments] : by_tensor) {
      std::sort(fragments.begin(), fragments.end(), [](const Fragment* a, const Fragment* b) {
        return std::pair(a->box.first_column, detail::rows_of(*a).begin) <
               std::pair(b->box.first_column, detail::rows_of(*b).begin);
      });
      // Boxes of one width, side by side: only neighbours in this order can meet. Others are compared with all.
      const auto width = [](const Fragment* f) { return std::pair(f->box.first_column, f->box.num_columns); };
      for (size_t i = 0; i < fragments.size(); ++i) {
        for (size_t j = i + 1; j < fragments.size(); ++j) {
          const bool may_meet = j == i + 1 || width(fragments[i]) != width(fragments[j]);
          require(
              !may_meet || columns_apart(*fragments[i], *fragments[j]) || overlap(*fragments[i], *fragments[j]) == 0,
              "\"{}\" has elements twice", index_.tensors[static_cast<size_t>(tensor)].name);
          if (j > i + 1 && width(fragments[i]) == width(fragments[j])) break;
        }
      }
    }
  }

  static bool columns_apart(const Fragment& a, const Fragment& b) {
    return a.box.first_column + a.box.num_columns <= b.box.first_column ||
           b.box.first_column + b.box.num_columns <= a.box.first_column;
  }

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

void check_index(const Index& index, const std::string& place) { Check(index, place).run(); }

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
  for (const TensorInfo& info : index.tensors) {
    json["tensors"].push_back({info.name, static_cast<int>(info.dtype), sizes_of(info.shape)});
  }
  for (const ShardFile& file : index.files) json["files"].push_back({file.path, file.bytes});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Index decode_index(const std::vector<int64_t>& numbers, const std::string& text) {
  const Json json = Json::parse(text);
  Index index;
  index.info.progress = {json["step"], json["samples"], json["tokens"], json["seed"]};
  index.info.config_text = json["config"];
  index.info.build_id = json["build_id"];
  for (const Json& info : json["tensors"]) {
    index.tensors.push_back({info[0], static_cast<Dtype>(info[1].get<int>()), shape_of(info[2])});
  }
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
