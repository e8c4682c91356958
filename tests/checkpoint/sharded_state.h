#pragma once
/// A checkpoint of several shards, written by one process.

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/conversion.h"
#include "tests/checkpoint/one_rank.h"

namespace tests {

/// Cut into `num_files` shards: tensors of more than one column by columns, others into ranges. One with fewer than
/// that has fewer parts.
inline std::vector<std::vector<checkpoint::LocalFragment>> cut_for(StateOfARun& state, int64_t num_files,
                                                                   std::vector<tensor::Tensor>& memory,
                                                                   tensor::Device& device) {
  std::vector<std::vector<checkpoint::LocalFragment>> of_files(static_cast<size_t>(num_files));
  for (const checkpoint::LocalFragment& whole : whole_fragments(state)) {
    const checkpoint::Box box = whole.fragment.box;
    const int64_t extent = box.num_columns > 1 ? box.num_columns : box.num_rows;
    for (int64_t file = 0; file < num_files; ++file) {
      const int64_t begin = extent * file / num_files, end = extent * (file + 1) / num_files;
      if (begin == end) continue;
      checkpoint::LocalFragment part{.info = whole.info, .fragment = whole.fragment, .values = {}};
      if (box.num_columns > 1) {
        part.fragment.box.first_column = begin;
        part.fragment.box.num_columns = end - begin;
        part.fragment.range = {0, part.fragment.box.numel()};
      } else {
        part.fragment.range = {begin, end};
      }
      memory.push_back(device.allocate({part.fragment.numel()}, part.info.dtype, tensor::MemoryCategory::other));
      part.values = memory.back().view();
      const int64_t size = tensor::size_of(part.info.dtype);
      checkpoint::for_each_overlap(whole.fragment, part.fragment, [&](int64_t from, int64_t to, int64_t count) {
        std::memcpy(static_cast<std::byte*>(part.values.raw()) + to * size,
                    static_cast<const std::byte*>(whole.values.raw()) + from * size, static_cast<size_t>(count * size));
      });
      of_files[static_cast<size_t>(file)].push_back(std::move(part));
    }
  }
  return of_files;
}

/// Returns its folder.
inline std::string save_in_shards(const std::string& dir, int64_t step, StateOfARun& state, int64_t num_files,
                                  tensor::Device& device) {
  const std::string folder = dir + "/" + checkpoint::folder_name(step);
  std::vector<tensor::Tensor> memory;
  checkpoint::SaveMemory save_memory(0);
  int rank = 0;
  for (auto& fragments : cut_for(state, num_files, memory, device)) {
    checkpoint::ShardWriter writer(fmt::format("{}/shards/000/rank_{:05d}.h5", folder, rank++), run_info(step),
                                   std::move(fragments), save_memory);
    CHECK(writer.wait().error.empty(), "the shard was not written: {}", writer.wait().error);
  }
  checkpoint::rebuild_index(folder);
  return folder;
}

/// One matrix, one vector and one of each dtype; none empty.
inline void fill_sharded(StateOfARun& state) {
  state.add("exp_avg/layers.0.norm.weight", {33}, tensor::Dtype::fp64);
  state.add("counts/experts", {5, 13}, tensor::Dtype::int32);
  state.add("counts/tokens", {3}, tensor::Dtype::int64);
  state.add("weights/embedding.token.weight", {300, 64}, tensor::Dtype::fp32);
  state.add("weights/layers.0.attention.q.weight", {7, 5}, tensor::Dtype::bf16);
}

}  // namespace tests
