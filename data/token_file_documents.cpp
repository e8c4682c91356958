/// Where the documents of a token file begin.

#include <algorithm>
#include <limits>

#include "data/token_file.h"
#include "tensor/error.h"

namespace data {

using tensor::DataError;

int64_t TokenFile::sequence_begin(int64_t sequence) const {
  if (sequence == index_->num_sequences) return num_tokens_;
  const auto offset = index_->file.load<int64_t>(index_->offsets + 8 * static_cast<uint64_t>(sequence));
  if (offset < 0 || offset % size_of(dtype_) != 0 || offset / size_of(dtype_) > num_tokens_)
    throw DataError(
        fmt::format("{}: sequence {} begins at byte {} of a .bin of {} bytes ({} bytes a token).\n"
                    "  Fix: the index is damaged or belongs to another .bin; build both again.",
                    index_->file.path(), sequence, offset, tokens_.size(), size_of(dtype_)));
  return offset / size_of(dtype_);
}

int64_t TokenFile::document_begin(int64_t index) const {
  CHECK(index_ && index >= 0 && index < index_->num_document_bounds, "document {}", index);
  const auto sequence = index_->file.load<int64_t>(index_->documents + 8 * static_cast<uint64_t>(index));
  if (sequence < 0 || sequence > index_->num_sequences)
    throw DataError(
        fmt::format("{}: document {} begins with sequence {}, but there are {}.\n"
                    "  Fix: the index is damaged; build it again.",
                    index_->file.path(), index, sequence, index_->num_sequences));
  return sequence_begin(sequence);
}

void TokenFile::document_starts(int64_t begin, int64_t end, std::vector<int64_t>& starts) const {
  CHECK(begin >= 0 && begin <= end && end <= num_tokens_, "tokens [{}, {}) of {}", begin, end, num_tokens_);
  starts.clear();
  if (!index_) {
    if (options_.eod_id < 0 || end - begin < 2) return;
    std::vector<int32_t> ids(end - begin - 1);
    read(begin, end - begin - 1, ids.data());
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == options_.eod_id) starts.push_back(begin + static_cast<int64_t>(i) + 1);
    return;
  }
  // The first document that begins after `begin`, by bisection; empty documents begin where the next one does.
  int64_t low = 0, high = index_->num_document_bounds - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (document_begin(middle) > begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  for (int64_t last = begin; low < index_->num_document_bounds; ++low) {
    const int64_t at = document_begin(low);
    if (at < last)
      throw DataError(
          fmt::format("{}: document {} begins at token {}, before its predecessor's {}.\n"
                      "  Fix: the index is damaged; build it again.",
                      index_->file.path(), low, at, last));
    if (at >= end) break;
    if (at > last) starts.push_back(at);
    last = at;
  }
}

/// What can be told without reading the lists: their first and last entries.
void TokenFile::check_index_ends() const {
  const Index& index = *index_;
  const std::string& path = index.file.path();
  const auto fail = [&](const std::string& what) {
    throw DataError(
        fmt::format("{}: {}\n  Fix: it is damaged or belongs to another .bin; build both again.", path, what));
  };
  if (num_tokens_ == 0 || index.num_sequences == 0)
    fail(fmt::format("{} sequences, and {} tokens in {}.", index.num_sequences, num_tokens_, tokens_.path()));
  if (index.num_document_bounds < 2)
    fail(fmt::format("{} document bounds; one document has 2.", index.num_document_bounds));
  const auto document = [&](int64_t i) {
    return index.file.load<int64_t>(index.documents + 8 * static_cast<uint64_t>(i));
  };
  const int64_t first = document(0), last = document(index.num_document_bounds - 1);
  if (first != 0 || last != index.num_sequences)
    fail(fmt::format("documents span sequences {} to {}, but there are {}.", first, last, index.num_sequences));
  const auto last_length = index.file.load<int32_t>(index.lengths + 4 * static_cast<uint64_t>(index.num_sequences - 1));
  const int64_t end = sequence_begin(index.num_sequences - 1) + last_length;
  if (last_length < 0 || end != num_tokens_)
    fail(fmt::format("its sequences end at token {}, but {} holds {} tokens ({} bytes).", end, tokens_.path(),
                     num_tokens_, tokens_.size()));
}

void TokenFile::check_index() const {
  if (!index_) return;
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format("{}: {}\n  Fix: the index is damaged; build it again.", index_->file.path(), what));
  };
  int64_t expected = 0;
  for (int64_t i = 0; i < index_->num_sequences; ++i) {
    const auto length = index_->file.load<int32_t>(index_->lengths + 4 * static_cast<uint64_t>(i));
    if (length < 0) fail(fmt::format("sequence {} has {} tokens.", i, length));
    if (const int64_t begin = sequence_begin(i); begin != expected)
      fail(fmt::format("sequence {} begins at token {}, but the one before ends at {}.", i, begin, expected));
    expected += length;
  }
  if (expected != num_tokens_)
    fail(fmt::format("its sequences have {} tokens together, {} has {}.", expected, tokens_.path(), num_tokens_));
  int64_t previous = 0;
  for (int64_t i = 0; i < index_->num_document_bounds; ++i) {
    const auto sequence = index_->file.load<int64_t>(index_->documents + 8 * static_cast<uint64_t>(i));
    if (sequence < previous || sequence > index_->num_sequences)
      fail(fmt::format("document {} begins with sequence {}, the one before with {}, of {}.", i, sequence, previous,
                       index_->num_sequences));
    previous = sequence;
  }
}

}  // namespace data
