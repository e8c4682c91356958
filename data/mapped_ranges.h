#pragma once
/// Which addresses are mapped files, kept where a signal handler can look them up. Signal handlers take no argument of
/// ours, so this is process-wide state: the only such state in this folder.

#include <cstddef>
#include <string>

namespace data {

/// Beyond a fixed number of mappings the rest is not remembered: their SIGBUS is reported without a name.
void remember_mapping(const void* begin, size_t size, const std::string& path);
void forget_mapping(const void* begin);

}  // namespace data
