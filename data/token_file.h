#pragma once
/// A file of token ids made by `trainer data build`, Megatron, llm.c or nanoGPT: one long stream of tokens, and where
/// its documents begin. Opening costs the same for any size of file: nothing is read but headers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/byte_file.h"

namespace data {

enum class TokenFileKind {
  megatron,    ///< X.bin (tokens) and X.idx (documents)
  llm_c,       ///< 1024-byte header, then u16 or u32 tokens
  headerless,  ///< u16 tokens and nothing else (nanoGPT)
};
enum class TokenDtype { u8, i8, u16, i16, i32, u32, i64 };

const char* name(TokenFileKind kind);
const char* name(TokenDtype dtype);
int64_t size_of(TokenDtype dtype);

struct TokenFileOptions {
  int64_t vocab_size = 0;  ///< ids must be below it; 0: any id that fits int32
  int64_t eod_id = -1;     ///< ends a document in files that do not list documents; -1: such a file is one document
  FileAccess access = FileAccess::mmap;
};

class TokenFile {
 public:
  /// Detects the kind by content. `path` names the file itself, or X, X.bin or X.idx of a Megatron pair.
  /// Throws DataError when it is none of the kinds or its sizes do not fit together.
  static TokenFile open(const std::string& path, const TokenFileOptions& options = {});

  const std::string& path() const { return tokens_.path(); }  ///< of the file that holds the tokens
  TokenFileKind kind() const { return kind_; }
  TokenDtype dtype() const { return dtype_; }
  int64_t num_tokens() const { return num_tokens_; }
  /// As the index lists them; nullopt where only the tokens could tell (no index).
  std::optional<int64_t> num_documents() const;
  /// First token of document `index` of a Megatron file; num_tokens() for index = num_documents().
  int64_t document_begin(int64_t index) const;

  /// Copies token ids [begin, begin + count). Throws DataError that names the first id outside the vocabulary.
  /// Thread-safe.
  void read(int64_t begin, int64_t count, int32_t* out) const;

  /// Every position in (begin, end) where a document begins, ascending; `starts` is cleared first. Thread-safe.
  void document_starts(int64_t begin, int64_t end, std::vector<int64_t>& starts) const;

  /// Reads the whole index and throws DataError at the first contradiction. open() calls this for small indices only.
  void check_index() const;

  /// Throws DataError when a file changed since it was opened.
  void check_unchanged() const;

 private:
  /// Where the parts of a Megatron .idx lie, in bytes.
  struct Index {
    ByteFile file;
    int64_t num_sequences, num_document_bounds;
    uint64_t lengths, offsets, documents;
  };

  TokenFile(ByteFile tokens, const TokenFileOptions& options) : tokens_(std::move(tokens)), options_(options) {}
  static TokenFile open_megatron(ByteFile tokens, const std::string& index_path, const TokenFileOptions& options);
  static Index read_index(ByteFile file);
  static TokenFile open_single(ByteFile tokens, const TokenFileOptions& options);
  void check_index_ends() const;
  int64_t sequence_begin(int64_t sequence) const;  ///< in tokens; checked to lie inside the file
  void check_ids(int64_t begin, int64_t count, const int32_t* ids) const;
  template <class T>
  void read_as(int64_t begin, int64_t count, int32_t* out) const;

  ByteFile tokens_;
  std::optional<Index> index_;
  TokenFileOptions options_;
  TokenFileKind kind_ = TokenFileKind::headerless;
  TokenDtype dtype_ = TokenDtype::u16;
  uint64_t header_bytes_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace data
