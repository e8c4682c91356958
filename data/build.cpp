#include "data/build.h"

#include <omp.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>

#include "data/documents.h"
#include "data/token_writer.h"
#include "data/utf8.h"
#include "tensor/error.h"

namespace data {

using tensor::ConfigError;
using tensor::DataError;

namespace {

constexpr uint64_t kBatchBytes = uint64_t{8} << 20;
constexpr size_t kDocumentsPerTask = 64;

/// Ids of neighbouring documents, made by one thread.
struct Encoded {
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths;  ///< of documents
  int64_t num_repaired = 0;
  std::exception_ptr error;
};

class ParallelEncoder {
 public:
  ParallelEncoder(const BuildOptions& options, const Tokenizer& tokenizer, std::optional<int32_t> eod)
      : options_(options), eod_(eod), checks_utf8_(options.tokenizer != "bytes") {
    for (int i = 0; i < omp_get_max_threads(); ++i) encoders_.push_back(tokenizer.make_encoder());
  }

  /// In the order of `documents`, whatever the number of threads.
  std::vector<Encoded> encode(const DocumentReader& reader, const std::vector<RawDocument>& documents) {
    const size_t num_tasks = (documents.size() + kDocumentsPerTask - 1) / kDocumentsPerTask;
    std::vector<Encoded> results(num_tasks);
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(encoders_.size()))
    for (size_t task = 0; task < num_tasks; ++task) {
      try {
        const size_t begin = task * kDocumentsPerTask, end = std::min(documents.size(), begin + kDocumentsPerTask);
        for (size_t i = begin; i < end; ++i) encode_one(reader, documents[i], results[task]);
      } catch (...) {
        results[task].error = std::current_exception();
      }
    }
    for (const Encoded& result : results)
      if (result.error) std::rethrow_exception(result.error);  // the first in document order
    return results;
  }

 private:
  void encode_one(const DocumentReader& reader, const RawDocument& document, Encoded& result) {
    std::string value;
    std::string_view text = document.bytes;
    if (options_.documents == DocumentSplit::jsonl)
      text = value = document_text(document, reader.path(document), options_.json_key);
    if (checks_utf8_ && valid_utf8_prefix(text) != text.size()) ++result.num_repaired;
    const size_t before = result.ids.size();
    encoders_[omp_get_thread_num()]->encode(text, result.ids);
    if (eod_ && result.ids.size() > before) result.ids.push_back(*eod_);
    result.lengths.push_back(static_cast<int64_t>(result.ids.size() - before));
  }

  const BuildOptions& options_;
  std::optional<int32_t> eod_;
  bool checks_utf8_;  ///< "bytes" takes any
  std::vector<std::unique_ptr<Tokenizer::Encoder>> encoders_;
};

/// One pair of files, or two: every document goes to train or, evenly spread, to valid.
class SplitWriter {
 public:
  SplitWriter(const BuildOptions& options, TokenDtype dtype) : valid_fraction_(options.valid_fraction) {
    const bool has_valid = valid_fraction_ > 0;
    train_ = std::make_unique<TokenWriter>(options.output_prefix + (has_valid ? "_train" : ""), dtype);
    if (has_valid) valid_ = std::make_unique<TokenWriter>(options.output_prefix + "_valid", dtype);
  }

  void add(const Encoded& encoded, BuildResult& result) {
    size_t begin = 0;
    for (const int64_t length : encoded.lengths) {
      const auto ids = std::span(encoded.ids).subspan(begin, length);
      begin += length;
      if (ids.empty()) {
        ++result.num_empty_documents;
        continue;
      }
      (takes_valid(result.num_documents) ? *valid_ : *train_).add_document(ids);
      ++result.num_documents;
      result.num_tokens += length;
    }
    result.num_repaired_documents += encoded.num_repaired;
  }

  void publish(BuildResult& result) {
    for (TokenWriter* writer : {train_.get(), valid_.get()}) {
      if (!writer) continue;
      writer->publish();
      for (const std::string& path : writer->paths()) result.written.push_back(path);
    }
  }

  void check_filled() const {
    if (train_->num_documents() == 0 && !valid_)
      throw DataError("the input has no text.\n  Fix: name files that are not empty.");
    if (valid_ && (valid_->num_documents() == 0 || train_->num_documents() == 0))
      throw DataError(
          fmt::format("--valid-fraction {} of {} documents leaves {} to train on and {} to evaluate on.\n"
                      "  Fix: cut the text into more documents (--documents lines), or keep back the end of "
                      "the tokens with data.valid_fraction in the run config.",
                      valid_fraction_, train_->num_documents() + valid_->num_documents(), train_->num_documents(),
                      valid_->num_documents()));
  }

  const TokenWriter* valid() const { return valid_.get(); }

 private:
  /// Document i is the floor((i + 1) * fraction)-th of valid where that is a new number.
  bool takes_valid(int64_t document) const {
    const auto floor_at = [&](int64_t i) { return std::floor(static_cast<double>(i) * valid_fraction_ + 1e-9); };
    return valid_ && floor_at(document + 1) > floor_at(document);
  }

  double valid_fraction_;
  std::unique_ptr<TokenWriter> train_, valid_;
};

void check_options(const BuildOptions& options) {
  if (options.inputs.empty()) throw ConfigError("no input files.\n  Fix: trainer data build FILE... --output PREFIX");
  if (options.output_prefix.empty() || options.output_prefix.back() == '/')
    throw ConfigError(
        fmt::format("--output \"{}\" is no prefix.\n  Fix: --output folder/name writes folder/name.bin and "
                    "folder/name.idx.",
                    options.output_prefix));
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1))
    throw ConfigError(
        fmt::format("--valid-fraction {} is outside [0, 1).\n  Fix: use the share of documents to evaluate "
                    "on, such as 0.01.",
                    options.valid_fraction));
  const std::vector<std::string> parts =
      options.valid_fraction > 0 ? std::vector<std::string>{"_train", "_valid"} : std::vector<std::string>{""};
  for (const std::string& part : parts) {
    for (const char* extension : {".bin", ".idx"}) {
      const std::string path = options.output_prefix + part + extension;
      struct stat status;
      if (!options.overwrite && ::stat(path.c_str(), &status) == 0)
        throw ConfigError(
            fmt::format("{} exists.\n  Fix: choose another --output, or replace it with --overwrite.", path));
    }
  }
}

std::optional<int32_t> find_eod(const BuildOptions& options, const Tokenizer& tokenizer) {
  if (!options.append_eod) return std::nullopt;
  const auto id = options.eod_token.empty() ? tokenizer.eod_id() : tokenizer.token_id(options.eod_token);
  if (id) return id;
  const std::string which = options.eod_token.empty() ? "end-of-document token" : "token \"" + options.eod_token + "\"";
  throw ConfigError(
      fmt::format("--append-eod: tokenizer \"{}\" has no {}.\n  Fix: name one of its added tokens with "
                  "--eod-token, or leave --append-eod out: the index lists documents without it.",
                  options.tokenizer, which));
}

}  // namespace

BuildResult build(const BuildOptions& options) {
  check_options(options);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.tokenizer);
  const std::optional<int32_t> eod = find_eod(options, *tokenizer);
  DocumentReader reader(options.inputs, options.documents);

  BuildResult result;
  result.vocab_size = tokenizer->vocab_size();
  ParallelEncoder encoder(options, *tokenizer, eod);
  SplitWriter writer(options, result.vocab_size < 65'536 ? TokenDtype::u16 : TokenDtype::i32);
  for (auto batch = reader.next_batch(kBatchBytes); !batch.empty(); batch = reader.next_batch(kBatchBytes)) {
    for (const Encoded& encoded : encoder.encode(reader, batch)) writer.add(encoded, result);
    if (options.progress)
      options.progress({.bytes_read = reader.bytes_read(),
                        .total_bytes = reader.total_bytes(),
                        .num_documents = result.num_documents,
                        .num_tokens = result.num_tokens});
  }
  writer.check_filled();
  if (const TokenWriter* valid = writer.valid()) {
    result.num_valid_documents = valid->num_documents();
    result.num_valid_tokens = valid->num_tokens();
  }
  writer.publish(result);
  return result;
}

}  // namespace data
