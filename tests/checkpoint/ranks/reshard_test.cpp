/// State that ranks saved in random pieces is what they load in other random pieces.

#include <fmt/core.h>
#include <mpi.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "checkpoint/comparison.h"
#include "checkpoint/directory.h"
#include "checkpoint/resume.h"
#include "checkpoint/sharded_save.h"
#include "checkpoint/verification.h"
#include "tests/parallel/ranks/rank_fixture.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace tests {

using checkpoint::Box;
using checkpoint::LocalFragment;
using checkpoint::TensorInfo;
using tensor::Dtype;

namespace {

/// Whole numbers that every dtype holds, another one nearly everywhere.
double value_of(size_t tensor, int64_t element) {
  return static_cast<double>((element * 7 + static_cast<int64_t>(tensor) * 31) % 251 - 125);
}

class Reshard : public RankTest {
 protected:
  Reshard() {
    if (rank() == 0) folder_.emplace();
    std::string path = rank() == 0 ? folder_->path() : std::string(256, '\0');
    path.resize(256, '\0');
    MPI_Bcast(path.data(), 256, MPI_CHAR, 0, MPI_COMM_WORLD);
    dir_ = path.c_str();
  }
  ~Reshard() override { MPI_Barrier(MPI_COMM_WORLD); }

  /// The same on every rank: drawn from one seed.
  int64_t draw(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random_() % static_cast<uint64_t>(last - first + 1));
  }

  std::vector<TensorInfo> draw_tensors() {
    std::vector<TensorInfo> tensors;
    const int64_t count = draw(1, 7);
    for (int64_t i = 0; i < count; ++i) {
      const auto dtype = static_cast<Dtype>(draw(0, 4));
      const tensor::Shape matrix{draw(1, 40), draw(1, 30)}, vector{draw(1, 200)};
      tensors.push_back({fmt::format("weights/{}", i), dtype, draw(0, 2) > 0 ? matrix : vector});
    }
    return tensors;
  }

  /// Boxes side by side: rows or columns, cut for as many ranks as there may be in a tensor-parallel group.
  std::vector<Box> draw_boxes(const Box& whole) {
    std::vector<Box> boxes;
    const bool cuts_columns = draw(0, 1) == 0;
    const int64_t extent = cuts_columns ? whole.num_columns : whole.num_rows, parts = draw(1, 4);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = extent * part / parts, end = extent * (part + 1) / parts;
      Box box = whole;
      (cuts_columns ? box.first_column : box.first_row) = begin;
      (cuts_columns ? box.num_columns : box.num_rows) = end - begin;
      if (box.numel() > 0) boxes.push_back(box);
    }
    return boxes;
  }

  LocalFragment make(const TensorInfo& info, const Box& box, parallel::Range range) {
    return {.info = info,
            .fragment = {.tensor = 0, .box = box, .range = range},
            .values = allocate({range.size()}, info.dtype)};
  }

  LocalFragment make_filled(const TensorInfo& info, size_t index, const Box& box, parallel::Range range) {
    LocalFragment local = make(info, box, range);
    for_each_value(local, [&](int64_t at, int64_t element) {
      store(info.dtype, value_of(index, element), local.values.raw(), at);
    });
    return local;
  }

  /// Every element on one rank; some ranks may have nothing.
  std::vector<LocalFragment> draw_owned(const std::vector<TensorInfo>& tensors) {
    std::vector<LocalFragment> owned;
    const int64_t num_owners = draw(1, size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      for (const Box& box : draw_boxes(checkpoint::whole_box(tensors[i].shape))) {
        for (int64_t begin = 0; begin < box.numel();) {
          const int64_t end = std::min(box.numel(), begin + draw(1, 1 + box.numel()));
          const bool is_mine = draw(0, num_owners - 1) == rank();
          if (is_mine) owned.push_back(make_filled(tensors[i], i, box, {begin, end}));
          begin = end;
        }
      }
    }
    return owned;
  }

  /// Of each tensor a piece, which other ranks may want too; some are empty.
  std::vector<LocalFragment> draw_wanted(const std::vector<TensorInfo>& tensors) {
    std::vector<LocalFragment> wanted;
    for (const TensorInfo& info : tensors) {
      const bool converts = draw(0, 1) == 0;
      for (int r = 0; r < size(); ++r) {
        const std::vector<Box> boxes = draw_boxes(checkpoint::whole_box(info.shape));
        const Box box = boxes[static_cast<size_t>(draw(0, std::ssize(boxes) - 1))];
        const int64_t begin = draw(0, box.numel()), end = draw(0, 3) > 0 ? draw(begin, box.numel()) : box.numel();
        TensorInfo as = info;
        if (converts && info.dtype == Dtype::fp32) as.dtype = Dtype::fp64;
        if (converts && info.dtype == Dtype::fp64) as.dtype = Dtype::fp32;
        if (r == rank()) wanted.push_back(make(as, box, {begin, end}));
      }
    }
    return wanted;
  }

  /// Calls visit(place in values, row-major place in the tensor).
  template <class Visit>
  static void for_each_value(const LocalFragment& local, const Visit& visit) {
    const Box& box = local.fragment.box;
    const int64_t columns = checkpoint::whole_box(local.info.shape).num_columns;
    for (int64_t i = local.fragment.range.begin; i < local.fragment.range.end; ++i) {
      const int64_t row = box.first_row + i / box.num_columns, column = box.first_column + i % box.num_columns;
      visit(i - local.fragment.range.begin, row * columns + column);
    }
  }

  void expect_values(const std::vector<LocalFragment>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      int num_wrong = 0;
      for_each_value(wanted[i], [&](int64_t at, int64_t element) {
        if (load(wanted[i].values.dtype(), wanted[i].values.raw(), at) != value_of(i, element)) ++num_wrong;
      });
      EXPECT_EQ(num_wrong, 0) << wanted[i].info.name << " " << wanted[i].info.shape.str();
    }
  }

  std::optional<TemporaryFolder> folder_;  // on rank 0
  std::string dir_;
  std::mt19937_64 random_{11};
  std::unique_ptr<parallel::Communicator> world_ = factory_.make("world", world());
  checkpoint::Wire wire_{*world_, *backend_.device};
};

checkpoint::RunInfo info_of(int64_t step) { return {{step, step * 8, step * 800, 5}, "[run]\n", "a test"}; }

TEST_F(Reshard, AnyPiecesBecomeAnyOthers) {
  for (int64_t trial = 0; trial < 60; ++trial) {
    const std::vector<TensorInfo> tensors = draw_tensors();

    const std::string path = checkpoint::save_sharded(wire_, dir_, info_of(trial), draw_owned(tensors));
    const std::vector<LocalFragment> wanted = draw_wanted(tensors);
    const checkpoint::Resumed resumed = checkpoint::resume_from(wire_, path, wanted);

    EXPECT_EQ(resumed.info, info_of(trial));
    expect_values(wanted);
  }
}

/// More blocks than a rank reads ahead, and more bytes than it has on their way.
TEST_F(Reshard, LargeTensorsTravelInManyBlocks) {
  const std::vector<TensorInfo> tensors = {{"weights/a", Dtype::fp64, {7001, 2003}}, {"weights/b", Dtype::fp32, {11}}};
  std::vector<LocalFragment> owned, wanted;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Box whole = checkpoint::whole_box(tensors[i].shape);
    const auto cut = [&](int64_t extent, int64_t part) { return extent * part / size(); };
    owned.push_back(make_filled(tensors[i], i, whole, {cut(whole.numel(), rank()), cut(whole.numel(), rank() + 1)}));
    Box columns = whole;
    columns.first_column = cut(whole.num_columns, rank());
    columns.num_columns = cut(whole.num_columns, rank() + 1) - columns.first_column;
    wanted.push_back(make(tensors[i], columns, {0, columns.numel()}));
  }

  const std::string path = checkpoint::save_sharded(wire_, dir_, info_of(1), owned);
  checkpoint::resume_from(wire_, path, wanted);

  expect_values(wanted);
}

/// Rank 0 is told once what shards hold: not again while it is the same, and again when it is not.
TEST_F(Reshard, SavesOfOneRunMayHoldOtherPieces) {
  const std::vector<TensorInfo> tensors = draw_tensors();
  checkpoint::ShardedSave save(wire_, {.dir = dir_, .retention = {}});
  const std::vector<LocalFragment> owned = draw_owned(tensors), others = draw_owned(tensors);
  const auto views_of = [](const std::vector<LocalFragment>& all) {
    std::vector<LocalFragment> views;
    for (const LocalFragment& local : all) views.push_back({local.info, local.fragment, local.values.view()});
    return views;
  };
  for (int64_t step = 1; step <= 4; ++step) {
    save.start(info_of(step), views_of(step <= 2 ? owned : others));
    save.finish();
    const std::vector<LocalFragment> wanted = draw_wanted(tensors);

    checkpoint::resume_from(wire_, save.path(), wanted);

    expect_values(wanted);
  }
}

TEST_F(Reshard, CheckpointsOfTwoCutsAreEqualAndWhole) {
  const std::vector<TensorInfo> tensors = draw_tensors();
  const std::string a = checkpoint::save_sharded(wire_, dir_ + "/a", info_of(1), draw_owned(tensors));
  const std::string b = checkpoint::save_sharded(wire_, dir_ + "/b", info_of(1), draw_owned(tensors));
  if (rank() != 0) return;

  EXPECT_TRUE(checkpoint::compare(a, b).is_equal());
  EXPECT_TRUE(checkpoint::verify(a).damages.empty());
}

TEST_F(Reshard, DamageOnOneRankIsToldToAll) {
  const std::vector<TensorInfo> tensors = {{"weights/w", Dtype::fp32, {size() * 100}}};
  std::vector<LocalFragment> owned;
  owned.push_back(
      make_filled(tensors[0], 0, checkpoint::whole_box(tensors[0].shape), {rank() * 100, rank() * 100 + 100}));
  for (const int64_t step : {1, 2}) checkpoint::save_sharded(wire_, dir_, info_of(step), owned);
  if (rank() == 0) {
    const std::string folder = dir_ + "/" + checkpoint::folder_name(2);
    const checkpoint::Index index = checkpoint::open_checkpoint(folder).index;
    const checkpoint::StoredFragment& last = index.fragments.back();
    const std::string path = folder + "/" + index.files[static_cast<size_t>(last.file)].path;
    std::string bytes = read_file(path);
    bytes[static_cast<size_t>(last.offset)] ^= 1;
    write_file(path, bytes);
  }
  MPI_Barrier(MPI_COMM_WORLD);

  const auto resumed = checkpoint::resume_newest(wire_, dir_, owned);

  EXPECT_TRUE(resumed.has_value());
  EXPECT_EQ(resumed->info.progress.step, 1);
  EXPECT_EQ(resumed->warnings.size(), 1u);
  expect_values(owned);
}

TEST_F(Reshard, AnErrorOfOneRankIsOneOfAllAndLeavesNothing) {
  if (rank() == 0) write_file(dir_ + "/file", "");
  MPI_Barrier(MPI_COMM_WORLD);

  EXPECT_THROW(checkpoint::save_sharded(wire_, dir_ + "/file", info_of(1), {}), tensor::StorageError);
}

}  // namespace

}  // namespace tests
