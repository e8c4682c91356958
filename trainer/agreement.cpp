#include "trainer/agreement.h"

#include "trainer/scalars.h"

namespace trainer {

Agreement agree(const Agreement& own, parallel::Communicator& world, tensor::Device& device) {
  // One maximum says both: of several signals the highest, and a signal saves in any case.
  const bool is_due = own.save_is_due && world.rank() == 0;
  const double highest =
      all_reduce_scalar(world, device, 2.0 * own.signal + (is_due ? 1 : 0), parallel::Reduction::max);
  const int signal = static_cast<int>(highest) / 2;
  return {.save_is_due = signal > 0 || highest > 0, .signal = signal};
}

}  // namespace trainer
