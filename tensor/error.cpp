#include "tensor/error.h"

namespace tensor {

void check_failed(const char* file, int line, const char* condition, const std::string& why) {
  throw InternalError(fmt::format("{}:{}: {} (CHECK({}) failed).\n  This is a bug in trainer, not in your run.", file,
                                  line, why, condition));
}

}  // namespace tensor
