#include "checkpoint/content_hash.h"

#include <memory>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace checkpoint {
namespace {

/// A stream of numbers and length-prefixed texts, so that no two different lists of fields give the same bytes.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(state_.get()); }

  void add(uint64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
    XXH3_64bits_update(state_.get(), bytes, sizeof bytes);
  }
  void add(int64_t number) { add(static_cast<uint64_t>(number)); }
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    XXH3_64bits_update(state_.get(), text.data(), text.size());
  }
  uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

}  // namespace

uint64_t hash_bytes(const void* data, int64_t bytes) { return XXH3_64bits(data, static_cast<size_t>(bytes)); }

uint64_t hash_contents(const RunInfo& info, std::span<const HashedTensor> tensors) {
  Hasher hasher;
  hasher.add(info.progress.step);
  hasher.add(info.progress.samples);
  hasher.add(info.progress.tokens);
  hasher.add(info.progress.seed);
  hasher.add(std::string_view(info.config_text));
  hasher.add(std::string_view(info.build_id));
  hasher.add(static_cast<uint64_t>(tensors.size()));
  for (const HashedTensor& tensor : tensors) {
    hasher.add(std::string_view(tensor.info.name));
    hasher.add(std::string_view(tensor::to_string(tensor.info.dtype)));
    hasher.add(int64_t{tensor.info.shape.num_dims()});
    for (int dim = 0; dim < tensor.info.shape.num_dims(); ++dim) hasher.add(tensor.info.shape[dim]);
    hasher.add(tensor.hash);
  }
  return hasher.digest();
}

}  // namespace checkpoint
