#include "tests/fuzz/tables_file.h"

#include <span>

#include "checkpoint/content_hash.h"
#include "checkpoint/format.h"
#include "checkpoint/index_file.h"
#include "checkpoint/tables.h"
#include "tests/fuzz/mutation.h"
#include "tests/support/temporary_folder.h"

namespace fuzz {

using checkpoint::hash_bytes;
using checkpoint::Index;

namespace {

/// The JSON list in `bytes` that begins with `begin`; no string in it has brackets.
std::string list_at(const std::string& bytes, const std::string& begin) {
  const size_t at = bytes.find(begin);
  CHECK(at != std::string::npos, "the file has the list {}", begin);
  size_t end = at;
  for (int depth = 0; depth > 0 || end == at; ++end) depth += (bytes[end] == '[') - (bytes[end] == ']');
  return bytes.substr(at, end - at);
}

uint64_t hash_of(std::span<const uint64_t> numbers) {
  return hash_bytes(numbers.data(), static_cast<int64_t>(numbers.size_bytes()));
}

uint64_t hash_of(const std::string& text) { return hash_bytes(text.data(), std::ssize(text)); }

void replace(std::string& bytes, const std::string& part, const std::string& by) {
  const size_t at = bytes.find(part);
  CHECK(at != std::string::npos, "the file has what is replaced");
  bytes.replace(at, part.size(), by);
}

}  // namespace

TablesFile::TablesFile(const std::string& path, const char* format_name)
    : format_name_(format_name), bytes_(tests::read_file(path)) {
  const checkpoint::InputFile input(path);
  const checkpoint::ForeignFile file(input);
  index_ = checkpoint::read_tables(file, file.read_run(format_name).info);
  tensors_ = list_at(bytes_, "[[\"counts/");
  files_ = index_.files.empty() ? "[]" : list_at(bytes_, "[[\"shards/");
}

/// As tables.cpp adds it up.
uint64_t TablesFile::own_hash(const std::string& tensors, const std::string& files) const {
  std::vector<uint64_t> fragments;
  for (const checkpoint::StoredFragment& stored : index_.fragments) {
    const checkpoint::Fragment& f = stored.fragment;
    for (const int64_t number : {f.tensor, f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                                 f.range.begin, f.range.end, stored.file, stored.offset, stored.first_block}) {
      fragments.push_back(static_cast<uint64_t>(number));
    }
  }
  return hash_of(std::vector<uint64_t>{checkpoint::hash_contents(index_.info, {}), hash_of(tensors), hash_of(files),
                                       hash_of(fragments), hash_of(index_.block_hashes)});
}

std::string TablesFile::with_other_text(Random& random) const {
  static const std::vector<std::string> kWords = {"[",
                                                  "]",
                                                  "\"",
                                                  ",",
                                                  "-1",
                                                  "null",
                                                  "{}",
                                                  "\\u0000",
                                                  "..",
                                                  "/",
                                                  "fp32",
                                                  "1e3",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "0"};
  const bool is_tensors = files_ == "[]" || random.one_in(2);
  const std::string& before = is_tensors ? tensors_ : files_;
  std::string text = with_other_words(before, kWords, random);
  text.resize(before.size(), ' ');  // in its place
  // a text ends at its first NUL
  const std::string read = text.c_str();
  const uint64_t old_hash = own_hash(tensors_, files_);
  const uint64_t hash = own_hash(is_tensors ? read : tensors_, is_tensors ? files_ : read);
  std::string bytes = bytes_;
  replace(bytes, before, text);
  replace(bytes, {reinterpret_cast<const char*>(&old_hash), sizeof old_hash},
          {reinterpret_cast<const char*>(&hash), sizeof hash});
  return bytes;
}

void TablesFile::change(Index& index, Random& random) const {
  if (index.fragments.empty()) return;
  checkpoint::StoredFragment& stored = random.one_of(index.fragments);
  int64_t unused = 0;
  int64_t* const numbers[] = {&stored.fragment.tensor,
                              &stored.fragment.box.first_row,
                              &stored.fragment.box.num_rows,
                              &stored.fragment.box.first_column,
                              &stored.fragment.box.num_columns,
                              &stored.fragment.range.begin,
                              &stored.fragment.range.end,
                              &stored.file,
                              &stored.offset,
                              &stored.first_block,
                              index.files.empty() ? &unused : &random.one_of(index.files).bytes,
                              &index.info.progress.step};
  *random.one_of(numbers) = any_number(random);
  if (random.one_in(8)) {
    random.one_of(index.tensors).shape = {std::abs(any_number(random) / 2), std::abs(any_number(random) / 2)};
  }
  if (random.one_in(8)) index.fragments.push_back(stored);
  if (random.one_in(8)) index.fragments.erase(index.fragments.begin());
  if (random.one_in(16) && !index.block_hashes.empty()) index.block_hashes.pop_back();
  if (random.one_in(16) && !index.files.empty()) index.files[0].path = "../x";
  if (random.one_in(16)) index.tensors[0].name = std::string(random.below(600), '/');
}

void TablesFile::write_with_other_numbers(const std::string& path, Random& random) const {
  Index index = index_;
  for (size_t i = 0; i <= random.below(4); ++i) change(index, random);
  checkpoint::TemporaryFile file(path);
  checkpoint::Layout layout(file);
  layout.describe_run(index.info, format_name_, 0);
  const checkpoint::TableWriter tables(layout, index);
  layout.close();
  tables.write(file, index);
  file.publish();
}

}  // namespace fuzz
