#include "trainer/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/scalars.h"

namespace trainer {

using tensor::Tensor;

namespace {

/// Views of the gradients that this rank alone counts; neighbours in one view.
std::vector<Tensor> owned_grads(const parallel::ParameterStore& store) {
  std::vector<Tensor> views;
  for (const auto& unit : store.units()) {
    parallel::Range open;
    const auto close = [&] {
      if (open.size() > 0) views.push_back(unit->own_grads.rows(open.begin, open.end));
    };
    for (const parallel::Parameter* parameter : unit->parameters) {
      const parallel::Range owned = store.owned_range(*parameter);
      if (owned.size() == 0 || parameter->spec().update == parallel::Update::balance) continue;
      const int64_t begin = parameter->offset() + owned.begin - unit->own.begin;
      if (begin != open.end || open.size() == 0) {
        close();
        open.begin = begin;
      }
      open.end = begin + owned.size();
    }
    close();
  }
  return views;
}

}  // namespace

double grad_norm(const parallel::ParameterStore& store, tensor::Ops& ops, parallel::Communicator& world) {
  const std::vector<Tensor> grads = owned_grads(store);
  double largest = 0;
  for (const Tensor& grad : grads) {
    const double own = ops.max_abs(grad);
    if (own > largest || std::isnan(own)) largest = own;
    if (std::isnan(largest)) break;
  }
  // An all_reduce of max may drop a NaN; infinity it keeps, and either way the step is refused.
  if (std::isnan(largest)) largest = std::numeric_limits<double>::infinity();
  largest = all_reduce_scalar(world, ops.device(), largest, parallel::Reduction::max);

  tensor::ExactSum sum(largest);
  for (const Tensor& grad : grads) sum += ops.sum_of_squares(grad, largest);
  tensor::ExactSum::Limbs limbs = sum.limbs();
  all_reduce_integers(world, ops.device(), limbs);
  return tensor::ExactSum::from_limbs(largest, limbs).root();
}

}  // namespace trainer
