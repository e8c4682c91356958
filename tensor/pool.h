#pragma once
/// Memory of one device, mapped once and reused: after the first step, no allocation reaches the system and no page
/// faults (a training step that maps and unmaps its tensors pays a page fault per 4 KiB: measured 1.3x on a CPU).

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tensor {

/// What memory is for. Each category has its own count and high-water mark.
enum class MemoryCategory : uint8_t { parameters, gradients, optimizer, activations, workspace, other };
constexpr int kNumMemoryCategories = 6;
std::string to_string(MemoryCategory category);

/// Where a pool gets its memory: huge pages on a CPU, cudaMalloc on a GPU.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void* map(int64_t bytes) = 0;  ///< throws StorageError-free InternalError naming the bytes when there is none
  virtual void unmap(void* data, int64_t bytes) = 0;
};

class Pool;

/// One allocation; gives itself back. Empty when default-constructed or moved from.
class PoolBlock {
 public:
  PoolBlock() = default;
  PoolBlock(Pool* pool, void* data, int64_t bytes, MemoryCategory category);
  PoolBlock(PoolBlock&& other) noexcept;
  PoolBlock& operator=(PoolBlock&& other) noexcept;
  ~PoolBlock();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class Pool;
  Pool* pool_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;  // as rounded up by the pool
  MemoryCategory category_ = MemoryCategory::other;
};

struct MemoryUse {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;  ///< high-water mark since the last reset_peaks()
};

/// Best fit with splitting and merging inside large mapped segments. Not thread-safe: one thread drives a device.
class Pool {
 public:
  static constexpr int64_t kAlignment = 64;  ///< bytes: a cache line, and what vector loads like

  explicit Pool(std::unique_ptr<MemorySource> source);
  ~Pool();
  Pool(const Pool&) = delete;

  PoolBlock allocate(int64_t bytes, MemoryCategory category);  ///< contents are undefined

  MemoryUse use(MemoryCategory category) const;
  MemoryUse total() const;
  int64_t mapped_bytes() const;  ///< taken from the system, in use or not
  void reset_peaks();

 private:
  friend class PoolBlock;
  struct Segment;
  void* take_best_fit(int64_t wanted);  // null when no free piece is large enough
  void map_segment(int64_t wanted);
  void release(const PoolBlock& block);

  std::unique_ptr<MemorySource> source_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::array<MemoryUse, kNumMemoryCategories> uses_{};
  MemoryUse total_;
};

}  // namespace tensor
