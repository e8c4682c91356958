#include <algorithm>

#include "data/build.h"
#include "data/utf8.h"
#include "tensor/error.h"

namespace data {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;
constexpr int64_t kNumFirst = 64;

/// Lengths of documents, one begin after another.
class DocumentLengths {
 public:
  explicit DocumentLengths(Inspection& inspection) : inspection_(inspection) {}

  void add(int64_t length) {
    inspection_.min_document = inspection_.num_documents == 0 ? length : std::min(inspection_.min_document, length);
    inspection_.max_document = std::max(inspection_.max_document, length);
    ++inspection_.num_documents;
  }

 private:
  Inspection& inspection_;
};

void measure_documents(const TokenFile& file, Inspection& inspection) {
  DocumentLengths lengths(inspection);
  int64_t previous = 0;
  if (file.kind() == TokenFileKind::megatron) {
    for (int64_t i = 1; i <= *file.num_documents(); ++i) {
      const int64_t end = file.document_begin(i);
      lengths.add(end - previous);
      previous = end;
    }
  } else {
    std::vector<int64_t> starts;
    for (int64_t begin = 0; begin < file.num_tokens(); begin += kChunk) {
      file.document_starts(begin, std::min(begin + kChunk + 1, file.num_tokens()), starts);
      for (const int64_t start : starts) {
        lengths.add(start - previous);
        previous = start;
      }
    }
    lengths.add(file.num_tokens() - previous);
  }
  inspection.mean_document = static_cast<double>(file.num_tokens()) / static_cast<double>(inspection.num_documents);
}

void scan_ids(const TokenFile& file, Inspection& inspection) {
  std::vector<int32_t> ids;
  for (int64_t begin = 0; begin < file.num_tokens(); begin += kChunk) {
    ids.resize(std::min(kChunk, file.num_tokens() - begin));
    file.read(begin, static_cast<int64_t>(ids.size()), ids.data());
    inspection.largest_id = std::max<int64_t>(inspection.largest_id, *std::max_element(ids.begin(), ids.end()));
    if (begin == 0) inspection.first_ids.assign(ids.begin(), ids.begin() + std::min<int64_t>(kNumFirst, ids.size()));
  }
}

/// `text` on one line, with nothing in it that a terminal would act on.
std::string escape(const std::string& text) {
  const std::string valid = repair_utf8(text);
  std::string escaped;
  for (size_t i = 0, length = 0; i < valid.size(); i += length) {
    const std::string_view character = std::string_view(valid).substr(i);
    length = utf8_length(character);
    const char32_t c = utf8_decode(character);
    if (c == '\n') {
      escaped += "\\n";
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
      escaped += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else {
      escaped.append(character.substr(0, length));
    }
  }
  return escaped;
}

}  // namespace

Inspection inspect(const std::string& path, const TokenFileOptions& options, const Tokenizer* tokenizer) {
  const TokenFile file = TokenFile::open(path, options);
  file.check_index();
  Inspection inspection;
  inspection.path = file.path();
  inspection.kind = name(file.kind());
  inspection.dtype = name(file.dtype());
  inspection.num_tokens = file.num_tokens();
  measure_documents(file, inspection);
  scan_ids(file, inspection);
  if (tokenizer) inspection.first_text = escape(tokenizer->decode(inspection.first_ids));
  return inspection;
}

std::string to_text(const Inspection& inspection) {
  std::string text = fmt::format("{}\n  kind         {}\n  dtype        {}\n  tokens       {}\n", inspection.path,
                                 inspection.kind, inspection.dtype, inspection.num_tokens);
  text += fmt::format("  documents    {} (tokens each: min {}, mean {:.1f}, max {})\n", inspection.num_documents,
                      inspection.min_document, inspection.mean_document, inspection.max_document);
  text += fmt::format("  largest id   {}\n  first ids   ", inspection.largest_id);
  for (size_t i = 0; i < std::min<size_t>(16, inspection.first_ids.size()); ++i)
    text += fmt::format(" {}", inspection.first_ids[i]);
  text += inspection.first_ids.size() > 16 ? " ...\n" : "\n";
  if (!inspection.first_text.empty()) text += fmt::format("  begins with  {}\n", inspection.first_text);
  return text;
}

}  // namespace data
