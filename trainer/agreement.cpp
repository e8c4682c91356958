#include "trainer/agreement.h"

#include <array>

#include "trainer/scalars.h"

namespace trainer {

Agreement agree(const Agreement& own, parallel::Communicator& world, tensor::Device& device) {
  const bool is_due = own.save_is_due && world.rank() == 0;
  std::array<int64_t, 3> sums = {is_due ? 1 : 0, own.signal != 0 ? 1 : 0, own.signal};
  all_reduce_integers(world, device, sums);
  return {.save_is_due = sums[0] > 0, .signal = sums[1] > 0 ? static_cast<int>(sums[2] / sums[1]) : 0};
}

}  // namespace trainer
