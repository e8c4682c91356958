#pragma once
/// From a runtime dtype to a template argument.

#include "tensor/dtype.h"
#include "tensor/error.h"

namespace tensor::cpu {

/// Calls body.operator()<T>() with the floating type of `dtype`: dispatch(x.dtype(), [&]<class T>() { ... }).
template <class Body>
decltype(auto) dispatch(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::fp32:
      return body.template operator()<float>();
    case Dtype::bf16:
      return body.template operator()<bfloat16>();
    case Dtype::fp64:
      return body.template operator()<double>();
    default:
      CHECK(false, "{} is a floating dtype", to_string(dtype));
  }
}

}  // namespace tensor::cpu
