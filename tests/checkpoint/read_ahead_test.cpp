#include "checkpoint/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/checkpoint/one_rank.h"
#include "tests/checkpoint/sharded_state.h"
#include "tests/support/temporary_folder.h"

namespace tests {

using checkpoint::Block;
using checkpoint::ReadAhead;

class ReadAheadTest : public testing::Test {
 protected:
  ReadAheadTest() {
    fill_sharded(state_);
    path_ = save_in_shards(folder_.path(), 1, state_, 3, rank_.device());
    opened_ = checkpoint::open_checkpoint(path_);
    for (const Block& block : ReadAhead::in_reading_order(checkpoint::blocks_of(opened_.index))) {
      blocks_.push_back({block});
    }
  }

  std::vector<std::byte> read_alone(const Block& block) {
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(opened_.index, block)));
    checkpoint::BlockReader(opened_).read(block, bytes.data());
    return bytes;
  }

  OneRank rank_;
  StateOfARun state_;
  TemporaryFolder folder_;
  std::string path_;
  checkpoint::OpenCheckpoint opened_;
  std::vector<ReadAhead::Wanted> blocks_;
};

TEST_F(ReadAheadTest, GivesTheBlocksInTheOrderAskedFor) {
  ASSERT_GT(blocks_.size(), 8u);
  ReadAhead reading(opened_, blocks_);

  for (const ReadAhead::Wanted& wanted : blocks_) {
    const ReadAhead::Read read = reading.next();
    EXPECT_TRUE(std::ranges::equal(read.bytes, read_alone(wanted.block)));
  }
}

TEST_F(ReadAheadTest, ReadsInPlace) {
  std::vector<std::byte> place = read_alone(blocks_[0].block);
  const std::vector<std::byte> expected = place;
  std::ranges::fill(place, std::byte{});
  blocks_[0].to = place.data();

  const ReadAhead::Read read = ReadAhead(opened_, blocks_).next();

  EXPECT_EQ(read.bytes.data(), place.data());
  EXPECT_EQ(place, expected);
}

TEST_F(ReadAheadTest, KeepsABufferAsLongAsItIsHeld) {
  std::vector<ReadAhead::Read> held;
  {
    ReadAhead reading(opened_, blocks_);
    for (size_t i = 0; i < blocks_.size(); ++i) held.push_back(reading.next());
  }

  for (size_t i = 0; i < blocks_.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(held[i].bytes, read_alone(blocks_[i].block)));
  }
}

TEST_F(ReadAheadTest, GoesOnBehindABlockThatIsDamaged) {
  blocks_[1].block.hash ^= 1;
  ReadAhead reading(opened_, blocks_);

  EXPECT_NO_THROW(reading.next());
  EXPECT_THROW(reading.next(), checkpoint::DamagedError);
  for (size_t i = 2; i < blocks_.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(reading.next().bytes, read_alone(blocks_[i].block)));
  }
}

TEST_F(ReadAheadTest, EndsWithBlocksUnread) {
  for (size_t num_read = 0; num_read < 3; ++num_read) {
    ReadAhead reading(opened_, blocks_);
    for (size_t i = 0; i < num_read; ++i) reading.next();
  }
}

TEST_F(ReadAheadTest, OfNothingIsNothing) { ReadAhead(opened_, {}); }

}  // namespace tests
