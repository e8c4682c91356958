#include "trainer/build_id.h"

namespace trainer {

std::string build_id() { return TRAINER_BUILD_ID; }  // from trainer/CMakeLists.txt

}  // namespace trainer
