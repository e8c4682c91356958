#include "data/recognize.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "data/utf8.h"
#include "tensor/error.h"

namespace data {

using tensor::DataError;

namespace {

constexpr uint64_t kWindowBytes = 4096;  // even, so that windows begin on a token
constexpr uint64_t kNumWindows = 16;

struct Format {
  std::string_view magic, name;
};
constexpr std::array<Format, 11> kOtherFormats = {{
    {"\x1f\x8b", "a gzip archive"},
    {"\x28\xb5\x2f\xfd", "a zstd archive"},
    {"\xfd"
     "7zXZ",
     "an xz archive"},
    {"BZh", "a bzip2 archive"},
    {"PK\x03\x04", "a zip archive"},
    {"\x93NUMPY", "a NumPy array file"},
    {"PAR1", "a Parquet file"},
    {"ARROW1", "an Arrow file"},
    {"\x89HDF\r\n", "an HDF5 file"},
    {"\xff\xfe", "UTF-16 text"},
    {"MMIDIDX", "a Megatron index; its tokens belong in a file of the same name with .bin"},
}};

/// Windows spread evenly over the file, the first and the last bytes included.
std::vector<std::string> read_windows(const ByteFile& file) {
  std::vector<std::string> windows;
  const uint64_t length = std::min(kWindowBytes, file.size());
  for (uint64_t i = 0; i < kNumWindows; ++i) {
    const uint64_t begin = (file.size() - length) / kNumWindows * i / 2 * 2;
    windows.emplace_back(length, '\0');
    file.read(begin, length, windows.back().data());
    if (length == file.size()) break;
  }
  return windows;
}

bool is_printable(unsigned char c) { return (c >= 0x20 && c < 0x7f) || (c >= '\t' && c <= '\r'); }

/// True for windows of UTF-8 with hardly a control byte, and of anything that is mostly printable ASCII. Tokens
/// fail both: their bytes are spread over all values, or every second one is zero.
bool looks_like_text(std::string_view window) {
  size_t num_control = 0, num_printable = 0;
  for (const char c : window) {
    num_printable += is_printable(static_cast<unsigned char>(c));
    num_control += static_cast<unsigned char>(c) < 0x20 && !is_printable(static_cast<unsigned char>(c));
  }
  if (num_printable * 20 >= window.size() * 17) return true;
  while (!window.empty() && (window.front() & 0xC0) == 0x80) window.remove_prefix(1);  // cut in a character
  const size_t cut = window.size() - std::min<size_t>(window.size(), valid_utf8_prefix(window));
  return cut < 4 && num_control * 50 < window.size();
}

/// Upper halves of 32-bit ids are tiny while lower halves are not.
bool looks_like_32_bit(std::string_view window) {
  const auto half = [&](size_t i) {
    return static_cast<unsigned char>(window[2 * i]) | static_cast<unsigned char>(window[2 * i + 1]) << 8;
  };
  size_t num_small_upper = 0, num_small_lower = 0;
  const size_t count = window.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    num_small_lower += half(2 * i) < 16;
    num_small_upper += half(2 * i + 1) < 16;
  }
  return count >= 4 && num_small_upper == count && num_small_lower * 2 < count;
}

}  // namespace

void require_headerless_tokens(const ByteFile& file) {
  const std::vector<std::string> windows = read_windows(file);
  for (const Format& format : kOtherFormats) {
    if (std::string_view(windows.front()).starts_with(format.magic))
      throw DataError(
          fmt::format("{}: is {}, not a file of tokens.\n"
                      "  Fix: unpack it if needed, and make tokens of it with `trainer data build`.",
                      file.path(), format.name));
  }
  const auto num_text = std::count_if(windows.begin(), windows.end(), looks_like_text);
  if (2 * num_text > static_cast<int64_t>(windows.size()))
    throw DataError(
        fmt::format("{}: is text, not a file of tokens.\n"
                    "  Fix: trainer data build {} --output PREFIX --tokenizer bytes|tokenizer.json",
                    file.path(), file.path()));
  if (file.size() % 2 != 0)
    throw DataError(
        fmt::format("{}: has {} bytes; a file of 16-bit tokens has an even number.\n"
                    "  It has no header of a known kind and no .idx beside it, so it could only be that.\n"
                    "  Fix: copy it again if it was cut short, or build it with `trainer data build`.",
                    file.path(), file.size()));
  if (file.size() % 4 == 0 && std::all_of(windows.begin(), windows.end(), looks_like_32_bit))
    throw DataError(
        fmt::format("{}: holds 32-bit tokens, but its index is missing (the same name with .idx).\n"
                    "  Without an index or header, only 16-bit tokens can be read.\n"
                    "  Fix: put the .idx file beside it.",
                    file.path()));
}

}  // namespace data
