#pragma once
/// Which elements a dropout keeps: a function of what the element is, not of where or when it is computed.
///
/// Philox counter (32-bit words)          key
///   0  feature / 4                        seed ^ hash_name("dropout")
///   1  token_index, low half
///   2  step
///   3  site << 16 | token_index >> 32
/// Word feature % 4 of the draw is the element's random number u; it is kept if u / 2^32 >= probability.

#include <algorithm>
#include <cmath>

#include "tensor/error.h"
#include "tensor/ops.h"
#include "tensor/philox.h"

namespace tensor::cpu {

class DropoutMask {
 public:
  static constexpr int64_t kBlock = 64;  ///< features drawn at once

  explicit DropoutMask(const Dropout& dropout)
      : key_(Philox::key(dropout.seed ^ hash_name("dropout"))),
        step_(static_cast<uint32_t>(dropout.step)),
        site_(static_cast<uint32_t>(dropout.site) << 16),
        threshold_(static_cast<uint32_t>(std::min(std::ceil(dropout.probability * 0x1p32), 0x1p32 - 1))),
        scale_(1.0 / (1.0 - dropout.probability)) {
    CHECK(0 <= dropout.probability && dropout.probability < 1, "dropout probability {} lies in [0, 1)",
          dropout.probability);
    CHECK(0 <= dropout.step && dropout.step < int64_t{1} << 32, "dropout step {} fits 32 bits", dropout.step);
    CHECK(0 <= dropout.site && dropout.site < int64_t{1} << 16, "dropout site {} fits 16 bits", dropout.site);
  }

  uint32_t threshold() const { return threshold_; }
  double scale() const { return scale_; }

  /// Random numbers of features [first_feature, first_feature + kBlock); first_feature is a multiple of kBlock.
  void draw(int64_t token_index, int64_t first_feature, uint32_t* random) const {
    const uint32_t token_low = static_cast<uint32_t>(token_index);
    const uint32_t token_high = site_ | (static_cast<uint32_t>(token_index >> 32) & 0xffffu);
    const uint32_t first = static_cast<uint32_t>(first_feature / 4);
    for (uint32_t i = 0; i < kBlock / 4; ++i) {
      const Philox::Counter r = Philox::draw({first + i, token_low, step_, token_high}, key_);
      random[4 * i] = r[0];
      random[4 * i + 1] = r[1];
      random[4 * i + 2] = r[2];
      random[4 * i + 3] = r[3];
    }
  }

 private:
  Philox::Key key_;
  uint32_t step_, site_, threshold_;
  double scale_;
};

}  // namespace tensor::cpu
