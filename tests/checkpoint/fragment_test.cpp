#include "checkpoint/fragment.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace {

using checkpoint::Box;
using checkpoint::Fragment;

using Places = std::vector<std::pair<int64_t, int64_t>>;  // of the same element in a and in b

int64_t draw(std::mt19937_64& random, int64_t first, int64_t last) {
  return first + static_cast<int64_t>(random() % static_cast<uint64_t>(last - first + 1));
}

/// Of a matrix [rows, columns]; some are empty.
Fragment random_fragment(std::mt19937_64& random, int64_t rows, int64_t columns) {
  Fragment fragment;
  Box& box = fragment.box;
  box.first_row = draw(random, 0, rows - 1);
  box.num_rows = draw(random, 1, rows - box.first_row);
  const bool has_all_columns = random() % 2 == 0;
  box.first_column = has_all_columns ? 0 : draw(random, 0, columns - 1);
  box.num_columns = has_all_columns ? columns : draw(random, 1, columns - box.first_column);
  fragment.range.begin = draw(random, 0, box.numel() / 2);
  fragment.range.end = draw(random, fragment.range.begin, box.numel());
  return fragment;
}

/// Row-major place in the tensor of every element of a fragment.
std::vector<int64_t> elements_of(const Fragment& fragment, int64_t columns) {
  std::vector<int64_t> elements;
  const Box& box = fragment.box;
  for (int64_t i = fragment.range.begin; i < fragment.range.end; ++i) {
    const int64_t row = box.first_row + i / box.num_columns, column = box.first_column + i % box.num_columns;
    elements.push_back(row * columns + column);
  }
  return elements;
}

Places naive_overlap(const Fragment& a, const Fragment& b, int64_t columns) {
  const std::vector<int64_t> in_a = elements_of(a, columns), in_b = elements_of(b, columns);
  Places places;
  for (size_t i = 0; i < in_a.size(); ++i) {
    for (size_t j = 0; j < in_b.size(); ++j) {
      if (in_a[i] == in_b[j]) places.emplace_back(i, j);
    }
  }
  return places;
}

TEST(Fragment, OverlapsWhereANaiveLoopSaysSo) {
  std::mt19937_64 random(1);
  int num_overlaps = 0, num_runs = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const int64_t rows = draw(random, 1, 7), columns = draw(random, 1, 6);
    const Fragment a = random_fragment(random, rows, columns), b = random_fragment(random, rows, columns);

    Places found;
    checkpoint::for_each_overlap(a, b, [&](int64_t in_a, int64_t in_b, int64_t count) {
      EXPECT_GT(count, 0);
      for (int64_t i = 0; i < count; ++i) found.emplace_back(in_a + i, in_b + i);
    });

    const Places expected = naive_overlap(a, b, columns);
    ASSERT_EQ(found, expected) << "trial " << trial;
    ASSERT_EQ(checkpoint::overlap(a, b), static_cast<int64_t>(expected.size()));
    const std::optional<checkpoint::Run> run = checkpoint::only_run(a, b);
    Places in_run;
    for (int64_t i = 0; run && i < run->count; ++i) in_run.emplace_back(run->in_a + i, run->in_b + i);
    ASSERT_TRUE(!run || in_run == expected) << "trial " << trial;
    num_runs += run ? 1 : 0;
    num_overlaps += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(num_overlaps, 2'000);
  EXPECT_GT(num_runs, 1'000);
  EXPECT_LT(num_runs, num_overlaps);
}

TEST(Fragment, OverlapsAsOneRunWhereRowsFollowOneAnother) {
  const Fragment whole{.tensor = 0, .box = {0, 100, 0, 8}, .range = {0, 800}};
  const Fragment part{.tensor = 0, .box = {10, 50, 0, 8}, .range = {3, 333}};
  int num_runs = 0;

  checkpoint::for_each_overlap(whole, part, [&](int64_t in_whole, int64_t in_part, int64_t count) {
    ++num_runs;
    EXPECT_EQ(in_whole, 83);
    EXPECT_EQ(in_part, 0);
    EXPECT_EQ(count, 330);
  });

  EXPECT_EQ(num_runs, 1);
}

}  // namespace
