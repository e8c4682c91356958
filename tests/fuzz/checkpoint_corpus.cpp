#include "tests/fuzz/checkpoint_corpus.h"

#include <filesystem>

#include "checkpoint/conversion.h"
#include "checkpoint/single_file.h"

namespace fuzz {

namespace fs = std::filesystem;
using tensor::Dtype;

CheckpointCorpus::CheckpointCorpus(const std::string& folder)
    : path_(folder + "/step_00000007"), single_file_(folder + "/single.h5") {
  state_.add("counts/experts", {5, 14}, Dtype::int32);
  state_.add("counts/tokens", {4}, Dtype::int64);
  state_.add("exp_avg/layers.0.norm.weight", {33}, Dtype::fp64);
  state_.add("weights/embedding.token.weight", {30, 8}, Dtype::fp32);
  state_.add("weights/layers.0.attention.q.weight", {7, 6}, Dtype::bf16);
  checkpoint::SaveMemory memory(0);
  for (const int64_t rank : {0, 1}) {
    checkpoint::ShardWriter writer(fmt::format("{}/shards/000/rank_{:05d}.h5", path_, rank), tests::run_info(7),
                                   shard(rank), memory);
    CHECK(writer.wait().error.empty(), "the shard was not written: {}", writer.wait().error);
  }
  checkpoint::rebuild_index(path_);
  checkpoint::save(single_file_, tests::run_info(7), state_.named());
}

/// Half of every tensor: of a matrix some columns, of another some values. Which values does not matter.
std::vector<checkpoint::LocalFragment> CheckpointCorpus::shard(int64_t rank) {
  std::vector<checkpoint::LocalFragment> fragments;
  for (const checkpoint::NamedTensor& named : state_.named()) {
    const tensor::Tensor& x = *named.tensor;
    checkpoint::Fragment fragment{.tensor = 0, .box = checkpoint::whole_box(x.shape()), .range = {}};
    if (fragment.box.num_columns > 1) {
      fragment.box.num_columns /= 2;
      fragment.box.first_column = rank * fragment.box.num_columns;
      fragment.range = {0, fragment.box.numel()};
    } else {
      fragment.range = {rank * (x.numel() / 2), rank == 0 ? x.numel() / 2 : x.numel()};
    }
    fragments.push_back({.info = {named.name, x.dtype(), x.shape()},
                         .fragment = fragment,
                         .values = x.reshaped({x.numel()}).rows(0, fragment.range.size())});
  }
  return fragments;
}

std::vector<std::string> CheckpointCorpus::files() const {
  return {"MANIFEST.json", "index.h5", "shards/000/rank_00000.h5", "shards/000/rank_00001.h5"};
}

}  // namespace fuzz
