#include "trainer/agreement.h"

#include "trainer/scalars.h"

namespace trainer {

Agreement agree(const Agreement& own, parallel::Communicator& world, tensor::Device& device) {
  // Of several signals the highest; a signal saves in any case.
  const bool is_due = own.save_is_due && world.rank() == 0;
  int64_t numbers[] = {own.signal, is_due ? 1 : 0, own.is_saving ? 1 : 0};
  all_reduce_integers(world, device, numbers, parallel::Reduction::max);
  const int signal = static_cast<int>(numbers[0]);
  return {.save_is_due = signal > 0 || numbers[1] > 0, .signal = signal, .is_saving = numbers[2] > 0};
}

}  // namespace trainer
