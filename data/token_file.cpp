#include "data/token_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "data/recognize.h"
#include "tensor/error.h"

namespace data {

using tensor::DataError;

namespace {

constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr uint64_t kIndexHeaderBytes = 34;
constexpr int64_t kCheckedAtOpen = int64_t{1} << 18;  // sequences and documents: a few ms; above, checked where used

constexpr uint64_t kLlmcHeaderBytes = 1024;
constexpr int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;

bool exists(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

/// X of X.bin and X.idx.
std::string without_extension(const std::string& path) {
  for (const char* extension : {".bin", ".idx"})
    if (path.ends_with(extension)) return path.substr(0, path.size() - 4);
  return path;
}

TokenDtype megatron_dtype(uint8_t code, const std::string& path) {
  switch (code) {
    case 1:
      return TokenDtype::u8;
    case 2:
      return TokenDtype::i8;
    case 3:
      return TokenDtype::i16;
    case 4:
      return TokenDtype::i32;
    case 5:
      return TokenDtype::i64;
    case 8:
      return TokenDtype::u16;
    case 6:
    case 7:
      throw DataError(
          fmt::format("{}: holds {} numbers (dtype {}); token ids are integers.\n"
                      "  Fix: build the file from text again, with an integer dtype.",
                      path, code == 6 ? "fp64" : "fp32", code));
    default:
      throw DataError(
          fmt::format("{}: dtype {} at byte 17 is unknown; 1 to 5 and 8 are integers.\n"
                      "  Fix: the index is damaged or of a newer format; build it again.",
                      path, code));
  }
}

/// a * b + c for sizes read from a file.
uint64_t checked_size(uint64_t a, uint64_t b, uint64_t c, const std::string& path, const char* what) {
  uint64_t product = 0, sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum))
    throw DataError(fmt::format(
        "{}: claims {} {}, more than any file can hold.\n  Fix: the file is damaged; copy or build it again.", path, a,
        what));
  return sum;
}

void check_index_header(const ByteFile& index) {
  if (index.size() < kIndexHeaderBytes)
    throw DataError(
        fmt::format("{}: has {} bytes; a Megatron index has {} before its lists.\n"
                    "  Fix: copy it again, or build it with `trainer data build`.",
                    index.path(), index.size(), kIndexHeaderBytes));
  char magic[sizeof kIndexMagic];
  index.read(0, sizeof magic, magic);
  if (std::memcmp(magic, kIndexMagic, sizeof magic) != 0)
    throw DataError(
        fmt::format("{}: does not begin with MMIDIDX, so it is no Megatron index.\n"
                    "  Fix: remove or rename it if the .bin beside it is of another kind.",
                    index.path()));
  if (const auto version = index.load<uint64_t>(9); version != 1)
    throw DataError(
        fmt::format("{}: Megatron index version {}; only version 1 is known.\n"
                    "  Fix: build it with `trainer data build` or a current Megatron.",
                    index.path(), version));
}

struct LlmcKind {
  int32_t version;
  TokenDtype dtype;
};

std::optional<LlmcKind> llmc_kind(int32_t magic) {
  if (magic == kLlmcGpt2) return LlmcKind{1, TokenDtype::u16};
  if (magic == kLlmcLlama3) return LlmcKind{7, TokenDtype::u32};
  return std::nullopt;
}

/// An llm.c header of some kind: a date as magic, and nothing but zeros in its unused part.
bool has_llmc_header(const ByteFile& file) {
  if (file.size() < kLlmcHeaderBytes) return file.size() >= 4 && llmc_kind(file.load<int32_t>(0));
  int32_t header[kLlmcHeaderBytes / 4];
  file.read(0, sizeof header, header);
  const bool is_date = header[0] > 20230000 && header[0] < 20400000;
  return llmc_kind(header[0]) ||
         (is_date && std::all_of(header + 32, std::end(header), [](int32_t value) { return value == 0; }));
}

}  // namespace

const char* name(TokenFileKind kind) {
  switch (kind) {
    case TokenFileKind::megatron:
      return "Megatron .bin/.idx";
    case TokenFileKind::llm_c:
      return "llm.c .bin";
    default:
      return "headerless .bin (nanoGPT)";
  }
}

const char* name(TokenDtype dtype) {
  constexpr const char* kNames[] = {"u8", "i8", "u16", "i16", "i32", "u32", "i64"};
  return kNames[static_cast<int>(dtype)];
}

int64_t size_of(TokenDtype dtype) {
  constexpr int64_t kSizes[] = {1, 1, 2, 2, 4, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}

TokenFile TokenFile::open(const std::string& path, const TokenFileOptions& options) {
  const std::string prefix = without_extension(path);
  const std::string index_path = prefix + ".idx", bin_path = prefix + ".bin";
  const bool names_pair = path.ends_with(".bin") || path.ends_with(".idx") || !exists(path);
  if (!names_pair) return open_single(ByteFile(path, options.access), options);
  if (exists(index_path)) return open_megatron(ByteFile(bin_path, options.access), index_path, options);
  if (path.ends_with(".bin")) return open_single(ByteFile(path, options.access), options);
  if (exists(bin_path))
    throw DataError(
        fmt::format("{}: {} exists, but {} does not.\n  The index says where documents begin.\n"
                    "  Fix: put the .idx beside it, or name {} if it is no Megatron file.",
                    path, bin_path, index_path, bin_path));
  throw DataError(
      fmt::format("{}: no such file, and no {} either.\n"
                  "  Fix: check the path; relative paths start at the working directory.",
                  path, bin_path));
}

TokenFile::Index TokenFile::read_index(ByteFile file) {
  const std::string path = file.path();
  const auto num_sequences = file.load<uint64_t>(18), num_bounds = file.load<uint64_t>(26);
  const uint64_t offsets = checked_size(num_sequences, 4, kIndexHeaderBytes, path, "sequences");
  const uint64_t documents = checked_size(num_sequences, 8, offsets, path, "sequences");
  const uint64_t end = checked_size(num_bounds, 8, documents, path, "documents");
  if (file.size() == end + num_sequences && num_sequences > 0)
    throw DataError(
        fmt::format("{}: is a multimodal index (one mode per sequence); only text can be read.\n"
                    "  Fix: build a text-only file.",
                    path));
  if (file.size() != end)
    throw DataError(
        fmt::format("{}: has {} bytes, but {} sequences and {} document bounds need {}.\n"
                    "  Fix: it was cut short or damaged; copy or build it again.",
                    path, file.size(), num_sequences, num_bounds, end));
  return {.file = std::move(file),
          .num_sequences = static_cast<int64_t>(num_sequences),
          .num_document_bounds = static_cast<int64_t>(num_bounds),
          .lengths = kIndexHeaderBytes,
          .offsets = offsets,
          .documents = documents};
}

TokenFile TokenFile::open_megatron(ByteFile tokens, const std::string& index_path, const TokenFileOptions& options) {
  ByteFile index(index_path, options.access);
  check_index_header(index);
  TokenFile file(std::move(tokens), options);
  file.kind_ = TokenFileKind::megatron;
  file.dtype_ = megatron_dtype(index.load<uint8_t>(17), index_path);
  file.index_.emplace(read_index(std::move(index)));
  if (file.tokens_.size() % size_of(file.dtype_) != 0)
    throw DataError(
        fmt::format("{}: has {} bytes, not a multiple of the {} bytes of a {} token.\n"
                    "  Fix: it was cut short; copy or build it again.",
                    file.path(), file.tokens_.size(), size_of(file.dtype_), name(file.dtype_)));
  file.num_tokens_ = static_cast<int64_t>(file.tokens_.size()) / size_of(file.dtype_);
  file.check_index_ends();
  if (std::max(file.index_->num_sequences, file.index_->num_document_bounds) <= kCheckedAtOpen) file.check_index();
  return file;
}

TokenFile TokenFile::open_single(ByteFile tokens, const TokenFileOptions& options) {
  if (tokens.size() == 0)
    throw DataError(
        fmt::format("{}: is empty.\n  Fix: build it again; the program that wrote it may have failed.", tokens.path()));
  TokenFile file(std::move(tokens), options);
  const std::string& path = file.path();
  if (!has_llmc_header(file.tokens_)) {
    require_headerless_tokens(file.tokens_);
    file.num_tokens_ = static_cast<int64_t>(file.tokens_.size() / 2);
    return file;
  }
  file.kind_ = TokenFileKind::llm_c;
  file.header_bytes_ = kLlmcHeaderBytes;
  if (file.tokens_.size() < kLlmcHeaderBytes)
    throw DataError(fmt::format("{}: has {} bytes; the header of an llm.c file alone has {}.\n  Fix: copy it again.",
                                path, file.tokens_.size(), kLlmcHeaderBytes));
  const auto magic = file.tokens_.load<int32_t>(0), version = file.tokens_.load<int32_t>(4);
  const auto kind = llmc_kind(magic);
  if (!kind || kind->version != version)
    throw DataError(
        fmt::format("{}: llm.c header {} version {}; token files have {} version 1 (u16) or {} version 7 (u32).\n"
                    "  Fix: name a token file, written by a current llm.c.",
                    path, magic, version, kLlmcGpt2, kLlmcLlama3));
  file.dtype_ = kind->dtype;
  // The field is an int32; files above 2^31 tokens are read as if it were unsigned.
  const uint64_t claimed = file.tokens_.load<uint32_t>(8);
  const uint64_t needed = checked_size(claimed, size_of(file.dtype_), kLlmcHeaderBytes, path, "tokens");
  if (needed != file.tokens_.size())
    throw DataError(
        fmt::format("{}: has {} bytes, but its header says {} {} tokens, which need {}.\n"
                    "  Fix: it was cut short or damaged; copy or build it again.",
                    path, file.tokens_.size(), claimed, name(file.dtype_), needed));
  if (claimed == 0) throw DataError(fmt::format("{}: holds 0 tokens.\n  Fix: build it again.", path));
  file.num_tokens_ = static_cast<int64_t>(claimed);
  return file;
}

std::optional<int64_t> TokenFile::num_documents() const {
  if (index_) return index_->num_document_bounds - 1;
  if (options_.eod_id < 0) return 1;
  return std::nullopt;
}

void TokenFile::check_unchanged() const {
  tokens_.check_unchanged();
  if (index_) index_->file.check_unchanged();
}

template <class T>
void TokenFile::read_as(int64_t begin, int64_t count, int32_t* out) const {
  constexpr int64_t kChunk = 4096;  // on the stack
  T buffer[kChunk];
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t n = std::min(kChunk, count - done);
    tokens_.read(header_bytes_ + static_cast<uint64_t>(begin + done) * sizeof(T), n * sizeof(T), buffer);
    for (int64_t i = 0; i < n; ++i) {
      // Ids that int32 cannot hold become -1, which check_ids() refuses.
      const bool fits =
          sizeof(T) < 4 || (buffer[i] >= 0 && buffer[i] <= static_cast<T>(std::numeric_limits<int32_t>::max()));
      out[done + i] = fits ? static_cast<int32_t>(buffer[i]) : -1;
    }
  }
}

void TokenFile::read(int64_t begin, int64_t count, int32_t* out) const {
  CHECK(begin >= 0 && count >= 0 && begin <= num_tokens_ - count, "tokens [{}, {} + {}) of {}", begin, begin, count,
        num_tokens_);
  switch (dtype_) {
    case TokenDtype::u8:
      read_as<uint8_t>(begin, count, out);
      break;
    case TokenDtype::i8:
      read_as<int8_t>(begin, count, out);
      break;
    case TokenDtype::u16:
      read_as<uint16_t>(begin, count, out);
      break;
    case TokenDtype::i16:
      read_as<int16_t>(begin, count, out);
      break;
    case TokenDtype::i32:
      read_as<int32_t>(begin, count, out);
      break;
    case TokenDtype::u32:
      read_as<uint32_t>(begin, count, out);
      break;
    case TokenDtype::i64:
      read_as<int64_t>(begin, count, out);
      break;
  }
  check_ids(begin, count, out);
}

void TokenFile::check_ids(int64_t begin, int64_t count, const int32_t* ids) const {
  const int64_t end = options_.vocab_size > 0 ? options_.vocab_size : int64_t{1} << 31;
  const auto bad = std::find_if(ids, ids + count, [&](int32_t id) { return id < 0 || id >= end; });
  if (bad == ids + count) return;
  const int64_t at = begin + (bad - ids);
  int64_t stored = *bad;
  if (dtype_ == TokenDtype::i64) stored = tokens_.load<int64_t>(header_bytes_ + at * 8);
  if (dtype_ == TokenDtype::u32) stored = tokens_.load<uint32_t>(header_bytes_ + at * 4);
  if (dtype_ == TokenDtype::i32) stored = tokens_.load<int32_t>(header_bytes_ + at * 4);
  throw DataError(
      fmt::format("{}: token {} has id {}, but ids must be in [0, {}).\n"
                  "  Fix: set model.vocab_size to that of the tokenizer which made the file, or build the "
                  "file with the tokenizer of this model.",
                  path(), at, stored, end));
}

}  // namespace data
