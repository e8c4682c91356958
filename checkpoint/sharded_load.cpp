#include "checkpoint/sharded_load.h"

#include <fmt/core.h>

#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/difference.h"
#include "checkpoint/load_wants.h"
#include "checkpoint/read_ahead.h"
#include "checkpoint/tensor_row.h"

namespace checkpoint {

using parallel::Range;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

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
    ReadAhead reading(checkpoint_, own_blocks(wants));
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
  // Each way.
  static constexpr int64_t kMostBytesInFlight = 4 * kBlockBytes;
  static constexpr size_t kMostMessagesInFlight = 64;

  struct Step {
    Block block;
    int reader;
  };
  struct Message {
    std::shared_ptr<AlignedBuffer> buffer;  // where values lie, if in one
    Tensor values;
    parallel::Handle call;  // last: it is through before what it uses goes

    int64_t held_bytes() const { return buffer ? buffer->bytes() : values.bytes(); }
  };

  /// Each rank's blocks in the order of its disk, ranks in turn.
  void plan(const Wants& wants) {
    std::vector<std::vector<Block>> of_ranks(static_cast<size_t>(wire_.size()));
    std::vector<int64_t> elements_read(of_ranks.size(), 0);
    for (const Block& block : blocks_of(checkpoint_.index)) {
      const std::optional<int> reader = reader_of(block, wants, elements_read);
      if (!reader) continue;
      elements_read[static_cast<size_t>(*reader)] += block.part.numel();
      of_ranks[static_cast<size_t>(*reader)].push_back(block);
    }
    size_t most = 0;
    for (std::vector<Block>& blocks : of_ranks) {
      blocks = ReadAhead::in_reading_order(std::move(blocks));
      most = std::max(most, blocks.size());
    }
    for (size_t i = 0; i < most; ++i) {
      for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
        if (i < of_ranks[rank].size()) steps_.push_back({of_ranks[rank][i], static_cast<int>(rank)});
      }
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
    const auto preference_of = [&](int rank) {
      return std::pair(-needed.at(rank), elements_read[static_cast<size_t>(rank)]);
    };
    for (const auto& [rank, count] : needed) {
      if (!reader || preference_of(rank) < preference_of(*reader)) reader = rank;
    }
    return reader;
  }

  Dtype dtype_of(const Block& block) const {
    return checkpoint_.index.tensors[static_cast<size_t>(block.part.tensor)].dtype;
  }

  // ---- this rank's own reading

  std::vector<ReadAhead::Wanted> own_blocks(const Wants& wants) const {
    std::vector<ReadAhead::Wanted> own;
    for (const Step& step : steps_) {
      if (step.reader != wire_.rank()) continue;
      std::byte* to = nullptr;
      for (const Wants::Want& want : wants.of(step.block.part)) {
        const std::optional<Run> run = run_in_place(step.block, want);
        if (run && run->count == step.block.part.numel()) to = targets_[want.index].place(run->in_b);
      }
      own.push_back({step.block, to});
    }
    return own;
  }

  /// What this rank wants of a block, where it can lie in the target as it comes from the file.
  std::optional<Run> run_in_place(const Block& block, const Wants::Want& want) const {
    const bool is_own = want.rank == wire_.rank();
    if (!is_own || targets_[want.index].dtype() != dtype_of(block)) return {};
    return only_run(block.part, want.fragment);
  }

  /// Where that fails the others still wait for the bytes: they get wrong ones, and a vote after.
  ReadAhead::Read read_next(ReadAhead& reading, const Block& block) {
    try {
      return reading.next();
    } catch (const tensor::Error& error) {
      if (failure_.empty()) failure_ = error.what();
      const int64_t bytes = bytes_of(checkpoint_.index, block);
      auto wrong = std::make_shared<AlignedBuffer>(bytes);
      return {{wrong->data(), static_cast<size_t>(bytes)}, wrong};
    }
  }

  // ---- from the one who read it to those who want it: a message for every block and want, in this order

  void hand_out(const Block& block, const ReadAhead::Read& read, const Wants& wants) {
    const int64_t size = tensor::size_of(dtype_of(block));
    for (const Wants::Want& want : wants.of(block.part)) {
      if (want.rank != wire_.rank()) {
        send(want.rank, message_of(block, read, want));
        continue;
      }
      Target& target = targets_[want.index];
      for_each_overlap(block.part, want.fragment, [&](int64_t from, int64_t to, int64_t count) {
        if (target.place(to) == read.bytes.data() + from * size) return target.mark(count);
        target.fill(to, read.bytes.data() + from * size, dtype_of(block), count);
      });
    }
  }

  /// As it lies in the file where it is one run; else its runs back to back.
  Message message_of(const Block& block, const ReadAhead::Read& read, const Wants::Want& want) {
    const Dtype dtype = dtype_of(block);
    const int64_t size = tensor::size_of(dtype);
    const std::optional<Run> run = only_run(block.part, want.fragment);
    const bool is_on_host = wire_.device().kind() == tensor::DeviceKind::cpu;
    if (run && is_on_host) {
      void* const values = read.bytes.data() + run->in_a * size;
      return {read.buffer, Tensor::view_of(values, {run->count}, dtype, wire_.device()), {}};
    }
    Message message{nullptr, allocate(overlap(block.part, want.fragment), dtype), {}};
    const HostBytes host(message.values);
    std::byte* next = host.data();
    for_each_overlap(block.part, want.fragment, [&](int64_t from, int64_t, int64_t count) {
      std::memcpy(next, read.bytes.data() + from * size, static_cast<size_t>(count * size));
      next += count * size;
    });
    host.upload(message.values);
    return message;
  }

  void send(int rank, Message message) {
    if (message.values.numel() == 0) return;
    bytes_sending_ += message.held_bytes();
    while (!sending_.empty() && (bytes_sending_ > kMostBytesInFlight || sending_.size() == kMostMessagesInFlight)) {
      sending_.front().call.wait();
      bytes_sending_ -= sending_.front().held_bytes();
      sending_.pop_front();
    }
    message.call = wire_.group().send(message.values, rank);
    sending_.push_back(std::move(message));
  }

  /// Of the steps from this one on, as far as memory allows: a sender finds its receiver ready.
  void post_receives(const Wants& wants) {
    for (; num_posted_ < steps_.size(); ++num_posted_) {
      const bool is_enough = bytes_receiving_ >= kMostBytesInFlight || receiving_.size() >= kMostMessagesInFlight;
      if (is_enough && num_posted_ > num_done_) return;
      const Step& step = steps_[num_posted_];
      if (step.reader == wire_.rank()) continue;
      for (const Wants::Want& want : wants.of(step.block.part)) {
        if (want.rank == wire_.rank()) post_receive(step, want);
      }
    }
  }

  void post_receive(const Step& step, const Wants::Want& want) {
    const int64_t count = overlap(step.block.part, want.fragment);
    if (count == 0) return;
    const Dtype dtype = dtype_of(step.block);
    const std::optional<Run> run = run_in_place(step.block, want);
    const bool is_on_host = wire_.device().kind() == tensor::DeviceKind::cpu;
    Message& message = receiving_.emplace_back();
    message.values = run && is_on_host
                         ? Tensor::view_of(targets_[want.index].place(run->in_b), {count}, dtype, wire_.device())
                         : allocate(count, dtype);
    message.call = wire_.group().receive(message.values, step.reader);
    bytes_receiving_ += message.values.bytes();
  }

  void take_in(const Step& step, const Wants& wants) {
    for (const Wants::Want& want : wants.of(step.block.part)) {
      if (want.rank == wire_.rank() && overlap(step.block.part, want.fragment) > 0) take_in(step.block, want);
    }
  }

  void take_in(const Block& block, const Wants::Want& want) {
    Message message = std::move(receiving_.front());
    receiving_.pop_front();
    message.call.wait();
    bytes_receiving_ -= message.values.bytes();
    Target& target = targets_[want.index];
    const HostBytes host(message.values);
    host.download(message.values);
    const std::byte* next = host.data();
    for_each_overlap(block.part, want.fragment, [&](int64_t, int64_t to, int64_t count) {
      if (target.place(to) == next) return target.mark(count);
      target.fill(to, next, dtype_of(block), count);
      next += count * tensor::size_of(dtype_of(block));
    });
  }

  Tensor allocate(int64_t count, Dtype dtype) const {
    return wire_.device().allocate({count}, dtype, MemoryCategory::other);
  }

  // ---- the end

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
  std::deque<Message> receiving_, sending_;  // oldest first
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
