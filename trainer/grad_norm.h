#pragma once
/// The global L2 norm of the gradient: the sum over the elements that each rank owns, in a sum that no cut over ranks,
/// buffers or threads changes by a bit. So clipping is the same on every layout.

#include "parallel/parameter_store.h"

namespace trainer {

/// After store.finish_gradients(). `world` are all ranks of the run. Not finite when any element is not.
double grad_norm(const parallel::ParameterStore& store, tensor::Ops& ops, parallel::Communicator& world);

}  // namespace trainer
