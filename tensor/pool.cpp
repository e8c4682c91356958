#include "tensor/pool.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tensor/error.h"

namespace tensor {

namespace {
constexpr int64_t kSegmentBytes = int64_t{64} << 20;   // what small allocations share; untouched pages cost nothing
constexpr int64_t kSegmentGranule = int64_t{2} << 20;  // a huge page

int64_t round_up(int64_t bytes, int64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

void grow(MemoryUse& use, int64_t bytes) {
  use.live_bytes += bytes;
  use.peak_bytes = std::max(use.peak_bytes, use.live_bytes);
}
}  // namespace

std::string to_string(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters:
      return "parameters";
    case MemoryCategory::gradients:
      return "gradients";
    case MemoryCategory::optimizer:
      return "optimizer";
    case MemoryCategory::activations:
      return "activations";
    case MemoryCategory::workspace:
      return "workspace";
    case MemoryCategory::other:
      return "other";
  }
  CHECK(false, "{} is a memory category", static_cast<int>(category));
}

PoolBlock::PoolBlock(Pool* pool, void* data, int64_t bytes, MemoryCategory category)
    : pool_(pool), data_(data), bytes_(bytes), category_(category) {}

PoolBlock::PoolBlock(PoolBlock&& other) noexcept { *this = std::move(other); }

PoolBlock& PoolBlock::operator=(PoolBlock&& other) noexcept {
  if (this == &other) return *this;
  if (pool_) pool_->release(*this);
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  category_ = other.category_;
  return *this;
}

PoolBlock::~PoolBlock() {
  if (pool_) pool_->release(*this);
}

/// One mapping. Its free pieces never touch each other. They are kept by offset, to merge, and by size, to be found: a
/// step of a long pipeline leaves many thousands.
struct Pool::Segment {
  char* data = nullptr;
  int64_t bytes = 0;

  bool is_free() const { return by_offset_.size() == 1 && by_offset_.begin()->second == bytes; }
  bool holds(const void* p) const { return p >= data && p < data + bytes; }

  /// Bytes of the smallest free piece of `wanted` or more; none where there is none.
  std::optional<int64_t> best_fit(int64_t wanted) const {
    const auto piece = by_size_.lower_bound({wanted, 0});
    return piece == by_size_.end() ? std::nullopt : std::optional(piece->first);
  }

  /// The front of the piece that best_fit() is about.
  void* take(int64_t wanted) {
    const auto [available, offset] = *by_size_.lower_bound({wanted, 0});
    remove(offset, available);
    if (available > wanted) add(offset + wanted, available - wanted);
    return data + offset;
  }

  void give_back(int64_t offset, int64_t size) {
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, before_size] = *std::prev(next);
      if (before + before_size == offset) {
        remove(before, before_size);
        offset = before;
        size += before_size;
      }
    }
    const auto after = by_offset_.find(offset + size);
    if (after != by_offset_.end()) {
      const int64_t after_size = after->second;
      remove(offset + size, after_size);
      size += after_size;
    }
    add(offset, size);
  }

  void add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }

 private:
  void remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;           // -> bytes
  std::set<std::pair<int64_t, int64_t>> by_size_;  // bytes, offset
};

Pool::Pool(std::unique_ptr<MemorySource> source) : source_(std::move(source)) {}

Pool::~Pool() {
  for (const auto& segment : segments_) source_->unmap(segment->data, segment->bytes);
}

PoolBlock Pool::allocate(int64_t bytes, MemoryCategory category) {
  CHECK(bytes >= 0, "an allocation of {} bytes is not negative", bytes);
  const int64_t wanted = round_up(std::max<int64_t>(bytes, 1), kAlignment);

  void* data = take_best_fit(wanted);
  if (!data) {
    map_segment(wanted);
    data = take_best_fit(wanted);
  }
  grow(uses_[static_cast<size_t>(category)], wanted);
  grow(total_, wanted);
  return PoolBlock(this, data, wanted, category);
}

void* Pool::take_best_fit(int64_t wanted) {
  Segment* best_segment = nullptr;
  int64_t best = 0;
  for (const auto& segment : segments_) {
    const std::optional<int64_t> piece = segment->best_fit(wanted);
    if (!piece || (best_segment && *piece >= best)) continue;
    best_segment = segment.get();
    best = *piece;
  }
  return best_segment ? best_segment->take(wanted) : nullptr;
}

// Segments that lie idle because they are too small make room first. This comes to rest: each time, the sizes of the
// segments, sorted, grow.
void Pool::map_segment(int64_t wanted) {
  std::erase_if(segments_, [&](const std::unique_ptr<Segment>& segment) {
    if (!segment->is_free()) return false;
    source_->unmap(segment->data, segment->bytes);
    return true;
  });
  auto segment = std::make_unique<Segment>();
  segment->bytes = round_up(std::max(wanted, kSegmentBytes), kSegmentGranule);
  segment->data = static_cast<char*>(source_->map(segment->bytes));
  segment->add(0, segment->bytes);
  segments_.push_back(std::move(segment));
}

void Pool::release(const PoolBlock& block) {
  const auto segment = std::find_if(segments_.begin(), segments_.end(),
                                    [&](const auto& candidate) { return candidate->holds(block.data_); });
  (*segment)->give_back(static_cast<char*>(block.data_) - (*segment)->data, block.bytes_);
  uses_[static_cast<size_t>(block.category_)].live_bytes -= block.bytes_;
  total_.live_bytes -= block.bytes_;
}

MemoryUse Pool::use(MemoryCategory category) const { return uses_[static_cast<size_t>(category)]; }

MemoryUse Pool::total() const { return total_; }

int64_t Pool::mapped_bytes() const {
  int64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment->bytes;
  return bytes;
}

void Pool::reset_peaks() {
  for (MemoryUse& use : uses_) use.peak_bytes = use.live_bytes;
  total_.peak_bytes = total_.live_bytes;
}

}  // namespace tensor
