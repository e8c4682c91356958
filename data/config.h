#pragma once
/// Table [data] of a run config: which token files to read, and how.

#include <cstdint>
#include <string>
#include <vector>

namespace data {

/// One token file to train on.
struct DataSource {
  std::string path;   ///< X.bin, X.idx or X of a Megatron pair; a llm.c .bin; a headerless u16 .bin (nanoGPT)
  double weight = 0;  ///< share of the samples, relative to the other weights. Give one to every source or to none:
                      ///< without weights, an epoch visits every sample of every file exactly once.
};

/// How file bytes reach memory. mmap is fastest; pread turns a failing disk or network into an error message instead of
/// a signal, and works on file systems that cannot map files.
enum class FileAccess { mmap, pread };

struct DataConfig {
  std::vector<DataSource> train = {};   ///< required to train
  std::vector<std::string> valid = {};  ///< files of the fixed evaluation set; empty: see valid_fraction
  double valid_fraction = 0;            ///< used when `valid` is empty: share of the end of each train file kept for
                                        ///< evaluation and never trained on; [0, 1)
  bool document_mask = false;           ///< tokens attend inside their own document only, and the last token of a
                                        ///< document predicts nothing
  int64_t eod_id = -1;                  ///< token that ends a document, for files that do not list documents; -1: none
  std::string tokenizer = "";           ///< "bytes" or the path of a tokenizer.json: what `sample` and `inspect` use
  int64_t prefetch_batches = 2;         ///< batches prepared ahead by a thread; at least 1
  FileAccess access = FileAccess::mmap;
};

}  // namespace data
