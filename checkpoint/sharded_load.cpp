#include "checkpoint/sharded_load.h"

#include <fmt/core.h>

#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/difference.h"
#include "checkpoint/tensor_row.h"

namespace checkpoint {

using parallel::Range;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

template <class From, class To>
void convert(const void* from, int64_t count, void* to) {
  const auto* x = static_cast<const From*>(from);
  auto* y = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i]);
}

/// Values of one floating dtype as another.
void copy_values(const void* from, Dtype from_dtype, int64_t count, void* to, Dtype to_dtype) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(count * tensor::size_of(to_dtype)));
  } else if (from_dtype == Dtype::fp32 && to_dtype == Dtype::fp64) {
    convert<float, double>(from, count, to);
  } else if (from_dtype == Dtype::fp64 && to_dtype == Dtype::fp32) {
    convert<double, float>(from, count, to);
  } else {
    CHECK(false, "{} is never loaded as {}", to_string(from_dtype), to_string(to_dtype));
  }
}

/// Where wanted values go: their own memory where the host can reach it, else a copy that finish() uploads.
class Target {
 public:
  explicit Target(const LocalFragment& wanted, int64_t tensor) : wanted_(wanted), fragment_(wanted.fragment) {
    fragment_.tensor = tensor;
    host_ = static_cast<std::byte*>(wanted.values.raw());
    if (wanted.values.device().kind() == tensor::DeviceKind::cpu) return;
    staging_.resize(static_cast<size_t>(wanted.values.bytes()));
    host_ = staging_.data();
  }

  const Fragment& fragment() const { return fragment_; }
  void fill(int64_t begin, const void* values, Dtype dtype, int64_t count) {
    const Dtype own = wanted_.values.dtype();
    copy_values(values, dtype, count, host_ + begin * tensor::size_of(own), own);
    num_filled_ += count;
  }
  bool is_complete() const { return num_filled_ == fragment_.numel(); }
  void finish() const {
    Tensor values = wanted_.values.view();
    if (!staging_.empty()) values.device().copy_from_host(staging_.data(), values);
  }

 private:
  const LocalFragment& wanted_;
  Fragment fragment_;
  std::byte* host_;
  std::vector<std::byte> staging_;
  int64_t num_filled_ = 0;
};

/// What every rank wants, by tensor: all ranks know the same.
class Wants {
 public:
  Wants(const Wire& wire, const std::vector<Target>& own) {
    Numbers numbers;
    for (const Target& target : own) {
      const Fragment& f = target.fragment();
      numbers.insert(numbers.end(), {f.tensor, f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                                     f.range.begin, f.range.end});
    }
    const std::vector<Numbers> all = wire.all_gather(numbers);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (size_t i = 0; i + 7 <= all[rank].size(); i += 7) {
        const int64_t* row = all[rank].data() + i;
        of_tensor_[row[0]].push_back(
            {static_cast<int>(rank),
             i / 7,
             {.tensor = row[0], .box = {row[1], row[2], row[3], row[4]}, .range = {row[5], row[6]}}});
      }
    }
  }

  struct Want {
    int rank;
    size_t index;  ///< in the rank's own list
    Fragment fragment;
  };
  const std::vector<Want>& of(const Fragment& part) const {
    static const std::vector<Want> none;
    const auto found = of_tensor_.find(part.tensor);
    return found == of_tensor_.end() ? none : found->second;
  }

 private:
  std::map<int64_t, std::vector<Want>> of_tensor_;  // by rank, then in each rank's order
};

class Load {
 public:
  Load(const Wire& wire, const OpenCheckpoint& checkpoint, std::span<const LocalFragment> wanted)
      : wire_(wire), checkpoint_(checkpoint), blocks_(blocks_of(checkpoint.index)), reader_(checkpoint) {
    std::map<std::string_view, int64_t> places;
    const std::vector<TensorInfo>& tensors = checkpoint.index.tensors;
    for (size_t i = 0; i < tensors.size(); ++i) places[tensors[i].name] = static_cast<int64_t>(i);
    for (const LocalFragment& local : wanted) targets_.emplace_back(local, places.at(local.info.name));
  }

  void run() {
    const Wants wants(wire_, targets_);
    std::vector<int64_t> bytes_read(static_cast<size_t>(wire_.size()), 0);
    for (const Block& block : blocks_) {
      const int reader = reader_of(block, wants, bytes_read);
      if (reader == kNobody) continue;
      if (reader == wire_.rank()) {
        hand_out(block, read(block), wants);
      } else {
        take_in(block, reader, wants);
      }
    }
    sending_.clear();
    finish();
  }

 private:
  static constexpr int kNobody = -1;
  struct Sending {
    Tensor values;
    parallel::Handle call;
  };

  /// The rank that needs most of it; of equal ones, which has read least.
  static int reader_of(const Block& block, const Wants& wants, std::vector<int64_t>& bytes_read) {
    std::map<int, int64_t> needed;
    for (const Wants::Want& want : wants.of(block.part)) {
      const int64_t count = overlap(block.part, want.fragment);
      if (count > 0) needed[want.rank] += count;
    }
    int reader = kNobody;
    for (const auto& [rank, count] : needed) {
      const auto is_better = [&] {
        const int64_t best = needed.at(reader);
        return count > best ||
               (count == best && bytes_read[static_cast<size_t>(rank)] < bytes_read[static_cast<size_t>(reader)]);
      };
      if (reader == kNobody || is_better()) reader = rank;
    }
    if (reader != kNobody) bytes_read[static_cast<size_t>(reader)] += block.part.numel();
    return reader;
  }

  Dtype dtype_of(const Block& block) const {
    return checkpoint_.index.tensors[static_cast<size_t>(block.part.tensor)].dtype;
  }

  /// Where that fails the others still wait for the bytes: they get wrong ones, and a vote after.
  std::vector<std::byte> read(const Block& block) {
    try {
      return reader_.read(block);
    } catch (const tensor::Error& error) {
      if (failure_.empty()) failure_ = error.what();
      return std::vector<std::byte>(static_cast<size_t>(reader_.bytes_of(block)));
    }
  }

  void hand_out(const Block& block, const std::vector<std::byte>& bytes, const Wants& wants) {
    const Dtype dtype = dtype_of(block);
    const int64_t size = tensor::size_of(dtype);
    std::map<int, std::vector<std::byte>> messages;
    for (const Wants::Want& want : wants.of(block.part)) {
      for_each_overlap(block.part, want.fragment, [&](int64_t from, int64_t to, int64_t count) {
        const std::byte* values = bytes.data() + from * size;
        if (want.rank == wire_.rank()) {
          targets_[want.index].fill(to, values, dtype, count);
        } else {
          std::vector<std::byte>& message = messages[want.rank];
          message.insert(message.end(), values, values + count * size);
        }
      });
    }
    for (const auto& [rank, message] : messages) send(rank, message, dtype);
  }

  void send(int rank, const std::vector<std::byte>& message, Dtype dtype) {
    constexpr size_t kMostInFlight = 8;
    if (sending_.size() == kMostInFlight) sending_.pop_front();
    Sending& sending = sending_.emplace_back();
    sending.values =
        wire_.device().allocate({std::ssize(message) / tensor::size_of(dtype)}, dtype, MemoryCategory::other);
    wire_.device().copy_from_host(message.data(), sending.values);
    sending.call = wire_.group().send(sending.values, rank);
  }

  void take_in(const Block& block, int reader, const Wants& wants) {
    int64_t total = 0;
    for_each_own(block, wants, [&](Target&, int64_t, int64_t count) { total += count; });
    if (total == 0) return;
    const Dtype dtype = dtype_of(block);
    Tensor values = wire_.device().allocate({total}, dtype, MemoryCategory::other);
    wire_.group().receive(values, reader).wait();
    std::vector<std::byte> host(static_cast<size_t>(values.bytes()));
    wire_.device().copy_to_host(values, host.data());
    int64_t taken = 0;
    for_each_own(block, wants, [&](Target& target, int64_t to, int64_t count) {
      target.fill(to, host.data() + taken * tensor::size_of(dtype), dtype, count);
      taken += count;
    });
  }

  template <class Visit>
  void for_each_own(const Block& block, const Wants& wants, const Visit& visit) {
    for (const Wants::Want& want : wants.of(block.part)) {
      if (want.rank != wire_.rank()) continue;
      for_each_overlap(block.part, want.fragment,
                       [&](int64_t, int64_t to, int64_t count) { visit(targets_[want.index], to, count); });
    }
  }

  /// No rank goes on before all know that all is well.
  void finish() {
    for (const Target& target : targets_) {
      if (!target.is_complete() && failure_.empty()) {
        failure_ = fmt::format("{}: this checkpoint lacks elements that this layout needs.", checkpoint_.folder);
      }
    }
    const std::vector<std::string> failures = wire_.gather(failure_);
    std::string first;
    for (const std::string& failure : failures) {
      if (first.empty()) first = failure;
    }
    first = wire_.from_root(first);
    if (!first.empty()) throw DamagedError(first);
    for (const Target& target : targets_) target.finish();
  }

  const Wire& wire_;
  const OpenCheckpoint& checkpoint_;
  std::vector<Block> blocks_;
  std::vector<Target> targets_;
  BlockReader reader_;
  std::deque<Sending> sending_;  // oldest first
  std::string failure_;
};

}  // namespace

void load_fragments(const Wire& wire, const OpenCheckpoint& checkpoint, std::span<const LocalFragment> wanted) {
  Load(wire, checkpoint, wanted).run();
}

void require_same_tensors(const Wire& wire, const OpenCheckpoint& checkpoint, const std::string& path,
                          std::span<const LocalFragment> wanted) {
  nlohmann::json own = nlohmann::json::array();
  for (const LocalFragment& local : wanted) own.push_back(to_row(local.info));
  std::map<std::string, TensorInfo> all;
  for (const std::string& text : wire.gather(own.dump())) {
    for (const auto& row : nlohmann::json::parse(text)) all[row[0]] = from_row(row);
  }
  if (!wire.is_root()) return;
  std::vector<TensorInfo> infos;
  for (auto& [name, info] : all) infos.push_back(std::move(info));
  require_same_tensors(path, checkpoint.index.tensors, infos);
}

}  // namespace checkpoint
