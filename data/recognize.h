#pragma once
/// A file without a header says nothing about itself. This tells tokens from what people mistake for them.

#include "data/byte_file.h"

namespace data {

/// Throws DataError when `file` cannot be headerless u16 tokens: it is text, an archive or other known format, 32-bit
/// tokens that lost their index, or has an odd number of bytes. Looks at a few windows only.
void require_headerless_tokens(const ByteFile& file);

}  // namespace data
