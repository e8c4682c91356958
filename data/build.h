#pragma once
/// Text files to a token file (`trainer data build`), and what is in a token file (`trainer data inspect`).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/tokenizer.h"

namespace data {

/// What one document of the input is.
enum class DocumentSplit {
  lines,  ///< a line with its newline
  files,  ///< a whole file
  jsonl,  ///< the value of one key of a line of JSON
};

struct BuildProgress {
  uint64_t bytes_read = 0, total_bytes = 0;
  int64_t num_documents = 0, num_tokens = 0;
};

struct BuildOptions {
  std::vector<std::string> inputs = {};
  std::string output_prefix = "";   ///< writes PREFIX.bin and PREFIX.idx, or with valid_fraction > 0 the two pairs
                                    ///< PREFIX_train.* and PREFIX_valid.*
  std::string tokenizer = "bytes";  ///< as load_tokenizer() takes it
  DocumentSplit documents = DocumentSplit::files;
  std::string json_key = "text";  ///< jsonl: where the text is
  bool append_eod = false;        ///< end each document with the tokenizer's end-of-document token
  std::string eod_token = "";     ///< that token's text, where the tokenizer does not make it clear
  double valid_fraction = 0;      ///< [0, 1): share of the documents, evenly spread, that becomes PREFIX_valid
  bool overwrite = false;         ///< replace existing output
  std::function<void(const BuildProgress&)> progress = {};  ///< called on the calling thread, every few MB
};

struct BuildResult {
  std::vector<std::string> written;  ///< paths, .bin before .idx
  int64_t num_documents = 0, num_tokens = 0;
  int64_t num_valid_documents = 0, num_valid_tokens = 0;  ///< part of the above
  int64_t num_empty_documents = 0;                        ///< left out: they have no tokens
  int64_t num_repaired_documents = 0;                     ///< held bytes that are not UTF-8, encoded as U+FFFD
  int64_t vocab_size = 0;
};

/// Output appears complete or not at all: it is written under temporary names, synced, then renamed. It does not depend
/// on the number of threads. u16 ids for a vocabulary of up to 65,535, i32 above.
/// Throws ConfigError (options), DataError (input), StorageError (output).
BuildResult build(const BuildOptions& options);

struct Inspection {
  std::string path, kind, dtype;
  int64_t num_tokens = 0;
  int64_t num_documents = 0;                   ///< 1 where the file does not list them
  int64_t min_document = 0, max_document = 0;  ///< tokens
  double mean_document = 0;
  int64_t largest_id = 0;
  std::vector<int32_t> first_ids;
  std::string first_text;  ///< first_ids decoded, control bytes escaped; empty without a tokenizer
};

/// Reads the whole file and checks all of it. `tokenizer` may be null.
Inspection inspect(const std::string& path, const TokenFileOptions& options = {}, const Tokenizer* tokenizer = nullptr);

std::string to_text(const Inspection& inspection);  ///< lines for a terminal

}  // namespace data
