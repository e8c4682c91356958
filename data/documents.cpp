#include "data/documents.h"

#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace data {

using tensor::DataError;

namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 31;  // ids of one document are held in memory: 4 bytes each

}  // namespace

DocumentReader::DocumentReader(const std::vector<std::string>& paths, DocumentSplit split) : split_(split) {
  for (const std::string& path : paths) {
    files_.emplace_back(path);
    total_bytes_ += files_.back().size();
  }
}

std::string_view DocumentReader::take_document(std::string_view rest) const {
  if (split_ == DocumentSplit::files) return rest;
  const size_t newline = rest.find('\n');
  return newline == std::string_view::npos ? rest : rest.substr(0, newline + 1);
}

std::vector<RawDocument> DocumentReader::next_batch(uint64_t batch_bytes) {
  std::vector<RawDocument> batch;
  for (uint64_t taken = 0; taken < batch_bytes && file_index_ < files_.size();) {
    const std::string_view rest = files_[file_index_].view().substr(position_);
    if (rest.empty()) {
      ++file_index_;
      position_ = 0;
      line_ = 1;
      continue;
    }
    const std::string_view bytes = take_document(rest);
    if (bytes.size() > kMaxDocumentBytes)
      throw DataError(
          fmt::format("{}: a document of {} bytes; {} is the most.\n"
                      "  Fix: cut the text into documents: --documents lines, or jsonl.",
                      files_[file_index_].path(), bytes.size(), kMaxDocumentBytes));
    batch.push_back({.bytes = bytes, .file_index = file_index_, .line = split_ == DocumentSplit::files ? 0 : line_});
    ++line_;
    position_ += bytes.size();
    taken += bytes.size();
    bytes_read_ += bytes.size();
  }
  return batch;
}

std::string document_text(const RawDocument& document, const std::string& path, const std::string& json_key) {
  const std::string_view line = document.bytes;
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return "";
  const auto fail = [&](const std::string& what) {
    throw DataError(
        fmt::format("{}:{}: {}\n  Fix: each line must be a JSON object with a string \"{}\" "
                    "(--json-key names another key).",
                    path, document.line, what, json_key));
  };
  try {
    const auto object = nlohmann::json::parse(line);
    const auto found = object.is_object() ? object.find(json_key) : object.end();
    if (!object.is_object() || found == object.end()) fail(fmt::format("has no key \"{}\".", json_key));
    if (!found->is_string()) fail(fmt::format("\"{}\" is {}, not a string.", json_key, found->type_name()));
    return found->get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    fail(fmt::format("is not JSON: {}.", error.what()));
  }
  return "";
}

}  // namespace data
