#include "checkpoint/sharded_load.h"

#include <fmt/core.h>

#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/difference.h"
#include "checkpoint/host_bytes.h"
#include "checkpoint/read_ahead.h"
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

/// Wanted values, filled piece by piece.
class Target {
 public:
  Target(const LocalFragment& wanted, int64_t tensor)
      : values_(wanted.values.view()), host_(values_), fragment_(wanted.fragment) {
    fragment_.tensor = tensor;
  }

  const Fragment& fragment() const { return fragment_; }
  void fill(int64_t begin, const void* values, Dtype dtype, int64_t count) {
    const Dtype own = values_.dtype();
    copy_values(values, dtype, count, host_.data() + begin * tensor::size_of(own), own);
    num_filled_ += count;
  }
  bool is_complete() const { return num_filled_ == fragment_.numel(); }
  void finish() { host_.upload(values_); }

 private:
  Tensor values_;
  HostBytes host_;
  Fragment fragment_;
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
      : wire_(wire), checkpoint_(checkpoint) {
    std::map<std::string_view, int64_t> places;
    const std::vector<TensorInfo>& tensors = checkpoint.index.tensors;
    for (size_t i = 0; i < tensors.size(); ++i) places[tensors[i].name] = static_cast<int64_t>(i);
    for (const LocalFragment& local : wanted) targets_.emplace_back(local, places.at(local.info.name));
  }

  /// Every rank goes through the same steps in the same order: nobody waits for a rank that waits for it.
  void run() {
    const Wants wants(wire_, targets_);
    plan(wants);
    std::vector<Block> own;
    for (const Step& step : steps_) {
      if (step.reader == wire_.rank()) own.push_back(step.block);
    }
    ReadAhead reading(checkpoint_, std::move(own));
    for (const Step& step : steps_) {
      post_receives(wants);
      if (step.reader == wire_.rank()) {
        hand_out(step.block, read_next(reading, step.block), wants);
      } else {
        take_in(step, wants);
      }
      ++num_done_;
    }
    sending_.clear();
    finish();
  }

 private:
  static constexpr int64_t kMostBytesInFlight = 4 * kBlockBytes;  // each way

  struct Step {
    Block block;
    int reader;
  };
  struct Message {
    Tensor values;
    parallel::Handle call;
  };

  void plan(const Wants& wants) {
    std::vector<int64_t> elements_read(static_cast<size_t>(wire_.size()), 0);
    for (const Block& block : blocks_of(checkpoint_.index)) {
      const std::optional<int> reader = reader_of(block, wants, elements_read);
      if (!reader) continue;
      elements_read[static_cast<size_t>(*reader)] += block.part.numel();
      steps_.push_back({block, *reader});
    }
  }

  /// The rank that needs most of it; of equal ones, which has read least. None: nobody needs it.
  static std::optional<int> reader_of(const Block& block, const Wants& wants,
                                      const std::vector<int64_t>& elements_read) {
    std::map<int, int64_t> needed;
    for (const Wants::Want& want : wants.of(block.part)) {
      const int64_t count = overlap(block.part, want.fragment);
      if (count > 0) needed[want.rank] += count;
    }
    std::optional<int> reader;
    const auto rank_of = [&](int rank) { return std::pair(-needed.at(rank), elements_read[static_cast<size_t>(rank)]); };
    for (const auto& [rank, count] : needed) {
      if (!reader || rank_of(rank) < rank_of(*reader)) reader = rank;
    }
    return reader;
  }

  Dtype dtype_of(const Block& block) const {
    return checkpoint_.index.tensors[static_cast<size_t>(block.part.tensor)].dtype;
  }

  /// Where that fails the others still wait for the bytes: they get wrong ones, and a vote after.
  std::span<const std::byte> read_next(ReadAhead& reading, const Block& block) {
    try {
      return reading.next();
    } catch (const tensor::Error& error) {
      if (failure_.empty()) failure_ = error.what();
      wrong_.resize(static_cast<size_t>(bytes_of(checkpoint_.index, block)));
      return wrong_;
    }
  }

  void hand_out(const Block& block, std::span<const std::byte> bytes, const Wants& wants) {
    const Dtype dtype = dtype_of(block);
    const int64_t size = tensor::size_of(dtype);
    std::map<int, int64_t> counts;
    for (const Wants::Want& want : wants.of(block.part)) {
      if (want.rank != wire_.rank()) counts[want.rank] += overlap(block.part, want.fragment);
    }
    for (const Wants::Want& want : wants.of(block.part)) {
      if (want.rank != wire_.rank()) continue;
      for_each_overlap(block.part, want.fragment, [&](int64_t from, int64_t to, int64_t count) {
        targets_[want.index].fill(to, bytes.data() + from * size, dtype, count);
      });
    }
    for (const auto& [rank, count] : counts) {
      if (count > 0) send(rank, gather_for(rank, count, block, bytes, wants));
    }
  }

  /// What another rank wants of a block, back to back in the order of its wants.
  Tensor gather_for(int rank, int64_t count, const Block& block, std::span<const std::byte> bytes,
                    const Wants& wants) {
    const int64_t size = tensor::size_of(dtype_of(block));
    Tensor message = wire_.device().allocate({count}, dtype_of(block), MemoryCategory::other);
    HostBytes host(message);
    std::byte* next = host.data();
    for (const Wants::Want& want : wants.of(block.part)) {
      if (want.rank != rank) continue;
      for_each_overlap(block.part, want.fragment, [&](int64_t from, int64_t, int64_t run) {
        std::memcpy(next, bytes.data() + from * size, static_cast<size_t>(run * size));
        next += run * size;
      });
    }
    host.upload(message);
    return message;
  }

  void send(int rank, Tensor message) {
    bytes_sending_ += message.bytes();
    while (!sending_.empty() && bytes_sending_ > kMostBytesInFlight) {
      sending_.front().call.wait();
      bytes_sending_ -= sending_.front().values.bytes();
      sending_.pop_front();
    }
    Message& sending = sending_.emplace_back(std::move(message), parallel::Handle());
    sending.call = wire_.group().send(sending.values, rank);
  }

  /// Of the steps from this one on, as far as memory allows: a sender finds its receiver ready.
  void post_receives(const Wants& wants) {
    for (; num_posted_ < steps_.size(); ++num_posted_) {
      if (bytes_receiving_ >= kMostBytesInFlight && num_posted_ > num_done_) return;
      const Step& step = steps_[num_posted_];
      if (step.reader == wire_.rank()) continue;
      int64_t count = 0;
      for (const Wants::Want& want : wants.of(step.block.part)) {
        if (want.rank == wire_.rank()) count += overlap(step.block.part, want.fragment);
      }
      Message& message = receiving_.emplace_back();
      if (count == 0) continue;
      message.values = wire_.device().allocate({count}, dtype_of(step.block), MemoryCategory::other);
      message.call = wire_.group().receive(message.values, step.reader);
      bytes_receiving_ += message.values.bytes();
    }
  }

  void take_in(const Step& step, const Wants& wants) {
    Message message = std::move(receiving_.front());
    receiving_.pop_front();
    if (message.values.numel() == 0) return;
    message.call.wait();
    bytes_receiving_ -= message.values.bytes();
    const Dtype dtype = dtype_of(step.block);
    HostBytes host(message.values);
    host.download(message.values);
    const std::byte* next = host.data();
    for (const Wants::Want& want : wants.of(step.block.part)) {
      if (want.rank != wire_.rank()) continue;
      for_each_overlap(step.block.part, want.fragment, [&](int64_t, int64_t to, int64_t count) {
        targets_[want.index].fill(to, next, dtype, count);
        next += count * tensor::size_of(dtype);
      });
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
    for (Target& target : targets_) target.finish();
  }

  const Wire& wire_;
  const OpenCheckpoint& checkpoint_;
  std::vector<Target> targets_;
  std::vector<Step> steps_;  // all that somebody needs, the same on every rank
  size_t num_posted_ = 0, num_done_ = 0;
  int64_t bytes_receiving_ = 0, bytes_sending_ = 0;
  std::deque<Message> receiving_, sending_;  // oldest first; receiving_: empty ones of steps that are others' affair
  std::vector<std::byte> wrong_;
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
