#include "checkpoint/shard.h"

#include <gtest/gtest.h>

#include <vector>

#include "checkpoint/content_hash.h"
#include "tensor/ops.h"
#include "tests/support/temporary_folder.h"

namespace tests {

using checkpoint::kBlockBytes;

/// How much memory copies may take: none, one block's, all.
class Shard : public testing::TestWithParam<int64_t> {};

TEST_P(Shard, HoldsTheValuesFromBeforeTheUpdate) {
  constexpr int64_t kCount = 5 * kBlockBytes / 8 + 3;  // five blocks of fp64 and a few values
  const tensor::Backend backend = tensor::make_cpu_backend({.num_threads = 1});
  const TemporaryFolder folder;
  std::vector<double> before(kCount);
  for (int64_t i = 0; i < kCount; ++i) before[static_cast<size_t>(i)] = static_cast<double>(i);
  tensor::Tensor values = backend.device->allocate({kCount}, tensor::Dtype::fp64, tensor::MemoryCategory::other);
  backend.device->copy_from_host(before.data(), values);
  std::vector<checkpoint::LocalFragment> fragments;
  fragments.push_back({.info = {"weights/w", tensor::Dtype::fp64, {kCount}},
                       .fragment = {.tensor = 0, .box = {0, kCount, 0, 1}, .range = {0, kCount}},
                       .values = values.view()});

  checkpoint::SaveMemory memory(GetParam());
  checkpoint::ShardWriter writer(folder / "shard.h5", {}, std::move(fragments), memory);
  writer.before_update();
  backend.device->zero(values);
  const checkpoint::WrittenShard& written = writer.wait();

  ASSERT_EQ(written.error, "");
  std::vector<uint64_t> expected;
  for (int64_t begin = 0; begin < kCount * 8; begin += kBlockBytes) {
    const auto* bytes = reinterpret_cast<const std::byte*>(before.data()) + begin;
    expected.push_back(checkpoint::hash_bytes(bytes, std::min(kBlockBytes, kCount * 8 - begin)));
  }
  EXPECT_EQ(written.block_hashes.at(0), expected);
}

INSTANTIATE_TEST_SUITE_P(Staging, Shard, testing::Values(0, kBlockBytes, 100 * kBlockBytes));

}  // namespace tests
