#include "tensor/dtype.h"

#include "tensor/error.h"

namespace tensor {

int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return 2;
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::fp64:
    case Dtype::int64:
      return 8;
  }
  CHECK(false, "dtype {} has a size", static_cast<int>(dtype));
}

std::string to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return "fp32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::fp64:
      return "fp64";
    case Dtype::int32:
      return "int32";
    case Dtype::int64:
      return "int64";
  }
  CHECK(false, "dtype {} has a name", static_cast<int>(dtype));
}

}  // namespace tensor
