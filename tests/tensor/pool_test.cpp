#include "tensor/pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "tensor/error.h"

namespace tensor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr MemoryCategory kCategory = MemoryCategory::activations;

struct SourceLog {
  int num_maps = 0, num_unmaps = 0;
  int64_t live_bytes = 0;
};

class LoggedSource final : public MemorySource {
 public:
  explicit LoggedSource(SourceLog& log) : log_(log) {}
  void* map(int64_t bytes) override {
    ++log_.num_maps;
    log_.live_bytes += bytes;
    return std::aligned_alloc(4096, static_cast<size_t>(bytes));
  }
  void unmap(void* data, int64_t bytes) override {
    ++log_.num_unmaps;
    log_.live_bytes -= bytes;
    std::free(data);
  }

 private:
  SourceLog& log_;
};

class PoolTest : public testing::Test {
 protected:
  SourceLog log_;
  Pool pool_{std::make_unique<LoggedSource>(log_)};
};

TEST_F(PoolTest, AlignsBlocksAndKeepsThemApart) {
  std::vector<PoolBlock> blocks;
  for (const int64_t bytes : {1, 63, 64, 65, 4097}) blocks.push_back(pool_.allocate(bytes, kCategory));

  std::map<char*, int64_t> by_address;
  for (const PoolBlock& block : blocks) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % Pool::kAlignment, 0u);
    by_address.emplace(static_cast<char*>(block.data()), block.bytes());
  }
  for (auto block = by_address.begin(); std::next(block) != by_address.end(); ++block) {
    EXPECT_LE(block->first + block->second, std::next(block)->first);
  }
}

TEST_F(PoolTest, AllowsZeroBytes) {
  const PoolBlock a = pool_.allocate(0, kCategory), b = pool_.allocate(0, kCategory);

  EXPECT_NE(a.data(), nullptr);
  EXPECT_NE(a.data(), b.data());
}

TEST_F(PoolTest, RejectsNegativeBytes) { EXPECT_THROW(pool_.allocate(-1, kCategory), InternalError); }

TEST_F(PoolTest, ReusesMemoryWithoutAskingTheSystemAgain) {
  for (int step = 0; step < 3; ++step) {
    const PoolBlock a = pool_.allocate(10 * kMiB, kCategory), b = pool_.allocate(20 * kMiB, kCategory);
  }

  EXPECT_EQ(log_.num_maps, 1);
}

TEST_F(PoolTest, MergesNeighboursWhateverTheOrderOfRelease) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<PoolBlock> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(pool_.allocate(16 * kMiB, kCategory));
    for (const int i : order) blocks[static_cast<size_t>(i)] = PoolBlock();
    const PoolBlock whole = pool_.allocate(64 * kMiB, kCategory);
  } while (std::next_permutation(order.begin(), order.end()));

  EXPECT_EQ(log_.num_maps, 1);
}

TEST_F(PoolTest, TakesTheSmallestPieceThatFits) {
  PoolBlock large = pool_.allocate(20 * kMiB, kCategory);
  const PoolBlock wall = pool_.allocate(kMiB, kCategory);
  PoolBlock small = pool_.allocate(5 * kMiB, kCategory);
  const PoolBlock rest = pool_.allocate(64 * kMiB - 26 * kMiB, kCategory);
  void* const small_data = small.data();
  large = PoolBlock();
  small = PoolBlock();

  EXPECT_EQ(pool_.allocate(4 * kMiB, kCategory).data(), small_data);
}

TEST_F(PoolTest, GivesLargeRequestsASegmentOfTheirSize) {
  const PoolBlock block = pool_.allocate(101 * kMiB, kCategory);

  EXPECT_EQ(pool_.mapped_bytes(), 102 * kMiB);
  EXPECT_EQ(log_.live_bytes, 102 * kMiB);
}

TEST_F(PoolTest, ReplacesIdleSegmentsThatAreTooSmall) {
  { const PoolBlock block = pool_.allocate(100 * kMiB, kCategory); }
  const PoolBlock larger = pool_.allocate(200 * kMiB, kCategory);

  EXPECT_EQ(pool_.mapped_bytes(), 200 * kMiB);
  EXPECT_EQ(log_.num_unmaps, 1);
}

TEST_F(PoolTest, CountsEachCategoryAndItsHighWaterMark) {
  const PoolBlock kept = pool_.allocate(1000, MemoryCategory::parameters);
  { const PoolBlock block = pool_.allocate(5000, MemoryCategory::workspace); }

  EXPECT_EQ(pool_.use(MemoryCategory::parameters).live_bytes, 1024);
  EXPECT_EQ(pool_.use(MemoryCategory::workspace).live_bytes, 0);
  EXPECT_EQ(pool_.use(MemoryCategory::workspace).peak_bytes, 5056);
  EXPECT_EQ(pool_.use(MemoryCategory::gradients).peak_bytes, 0);
  EXPECT_EQ(pool_.total().live_bytes, 1024);
  EXPECT_EQ(pool_.total().peak_bytes, 1024 + 5056);

  pool_.reset_peaks();
  EXPECT_EQ(pool_.use(MemoryCategory::workspace).peak_bytes, 0);
  EXPECT_EQ(pool_.total().peak_bytes, 1024);
}

TEST_F(PoolTest, MovesBlocksWithoutReleasingThem) {
  PoolBlock a = pool_.allocate(100, kCategory);
  void* const data = a.data();
  PoolBlock b = std::move(a);
  PoolBlock c;
  c = std::move(b);

  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(b.data(), nullptr);
  EXPECT_EQ(pool_.total().live_bytes, 128);
  c = PoolBlock();
  EXPECT_EQ(pool_.total().live_bytes, 0);
}

TEST_F(PoolTest, NeverHandsOutTheSameByteTwice) {
  std::mt19937 random(1);
  std::vector<PoolBlock> blocks(50);
  for (int i = 0; i < 5000; ++i) {
    const size_t slot = random() % blocks.size();
    if (blocks[slot].data()) {
      const auto* bytes = static_cast<const unsigned char*>(blocks[slot].data());
      ASSERT_EQ(std::count(bytes, bytes + blocks[slot].bytes(), slot), blocks[slot].bytes()) << "at step " << i;
    }
    blocks[slot] = PoolBlock();
    blocks[slot] = pool_.allocate(random() % 20'000, kCategory);
    std::memset(blocks[slot].data(), static_cast<int>(slot), static_cast<size_t>(blocks[slot].bytes()));
  }

  blocks.clear();
  EXPECT_EQ(pool_.total().live_bytes, 0);
  EXPECT_EQ(log_.num_maps, 1);
}

TEST_F(PoolTest, FindsPiecesAmongManyThousandsAtOnce) {
  constexpr int kNumBlocks = 200'000;
  std::vector<PoolBlock> small, large;
  const auto begin = std::chrono::steady_clock::now();

  for (int i = 0; i < kNumBlocks; ++i) small.push_back(pool_.allocate(64, kCategory));
  for (int i = 0; i < kNumBlocks; i += 2) small[static_cast<size_t>(i)] = PoolBlock();
  for (int i = 0; i < kNumBlocks; ++i) large.push_back(pool_.allocate(128, kCategory));

  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5) << "looking through all of them takes a minute";
}

TEST(Pool, GivesEverythingBackToTheSystem) {
  SourceLog log;
  {
    Pool pool(std::make_unique<LoggedSource>(log));
    pool.allocate(1, kCategory);
    const PoolBlock large = pool.allocate(100 * kMiB, kCategory);
  }

  EXPECT_EQ(log.live_bytes, 0);
}

}  // namespace
}  // namespace tensor
