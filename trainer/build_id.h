#pragma once
/// Which program this is: "0.1.0 (3fa9c21)", the version and the commit it was configured from.

#include <string>

namespace trainer {

std::string build_id();

}  // namespace trainer
