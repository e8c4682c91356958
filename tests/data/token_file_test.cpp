#include "data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tests/data/temp_folder.h"

using data::FileAccess;
using data::TokenFile;
using data::TokenFileKind;
using tests::TempFolder;

namespace {

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> ids(file.num_tokens());
  file.read(0, file.num_tokens(), ids.data());
  return ids;
}

std::vector<int64_t> starts_in(const TokenFile& file, int64_t begin, int64_t end) {
  std::vector<int64_t> starts = {99};
  file.document_starts(begin, end, starts);
  return starts;
}

std::string llmc_header(int32_t magic, int32_t version, int32_t num_tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = num_tokens;
  return {reinterpret_cast<const char*>(header.data()), 1024};
}

}  // namespace

TEST(TokenFile, ReadsLlmcGpt2Files) {
  const TempFolder folder;
  const auto path =
      folder.write("a.bin", llmc_header(20240520, 1, 3) +
                                tests::Bytes().put<uint16_t>(50256).put<uint16_t>(0).put<uint16_t>(7).text());

  const TokenFile file = TokenFile::open(path, {.vocab_size = 50257});

  EXPECT_EQ(file.kind(), TokenFileKind::llm_c);
  EXPECT_EQ(all_tokens(file), (std::vector<int32_t>{50256, 0, 7}));
  EXPECT_EQ(file.num_documents(), 1);
}

TEST(TokenFile, ReadsLlmcLlama3Files) {
  const TempFolder folder;
  const auto path =
      folder.write("a.bin", llmc_header(20240801, 7, 2) + tests::Bytes().put<uint32_t>(128255).put<uint32_t>(1).text());

  EXPECT_EQ(all_tokens(TokenFile::open(path)), (std::vector<int32_t>{128255, 1}));
}

TEST(TokenFile, ReadsHeaderlessFilesOfSmallAndLargeIds) {
  const TempFolder folder;
  std::vector<uint16_t> characters, words, bases;
  for (int i = 0; i < 9999; ++i) {
    characters.push_back(i * 31 % 65);   // a character-level vocabulary
    words.push_back(i * 12345 % 50257);  // GPT-2
    bases.push_back(i % 7 % 4);          // DNA
  }
  for (const auto& ids : {characters, words, bases}) {
    const TokenFile file = TokenFile::open(folder.write("tokens.bin", ids));
    EXPECT_EQ(file.kind(), TokenFileKind::headerless);
    EXPECT_EQ(all_tokens(file), std::vector<int32_t>(ids.begin(), ids.end()));
  }
}

TEST(TokenFile, ReadsWhatMegatronCoreWrote) {
  for (const std::string dtype : {"u16", "i32"}) {
    const TokenFile file = TokenFile::open(tests::golden("megatron_" + dtype));
    const auto documents = nlohmann::json::parse(tests::read_bytes(tests::golden("megatron_" + dtype + ".json")));
    std::vector<int32_t> ids;
    std::vector<int64_t> begins;
    for (const auto& document : documents) {
      begins.push_back(static_cast<int64_t>(ids.size()));
      for (const auto& sequence : document) ids.insert(ids.end(), sequence.begin(), sequence.end());
    }
    EXPECT_EQ(file.kind(), TokenFileKind::megatron);
    EXPECT_EQ(name(file.dtype()), dtype);
    EXPECT_EQ(all_tokens(file), ids);
    EXPECT_EQ(file.num_documents(), static_cast<int64_t>(documents.size()));
    begins.erase(begins.begin());  // starts after 0
    EXPECT_EQ(starts_in(file, 0, file.num_tokens()), begins);
  }
}

TEST(TokenFile, ReadsEveryIntegerDtypeOfMegatron) {
  const TempFolder folder;
  const auto check = [&]<class T>(uint8_t code, T) {
    tests::IndexParts index({2, 1});
    index.dtype = code;
    index.offsets = {0, 2 * static_cast<int64_t>(sizeof(T))};
    folder.write("x.idx", index.text());
    folder.write("x.bin", std::vector<T>{1, 100, 3});
    EXPECT_EQ(all_tokens(TokenFile::open(folder.path("x"))), (std::vector<int32_t>{1, 100, 3})) << int{code};
  };
  check(1, uint8_t{});
  check(2, int8_t{});
  check(3, int16_t{});
  check(4, int32_t{});
  check(5, int64_t{});
  check(8, uint16_t{});
}

TEST(TokenFile, OpensAMegatronPairByEachOfItsNames) {
  const TempFolder folder;
  folder.write("x.idx", tests::IndexParts({3}).text());
  folder.write("x.bin", std::vector<uint16_t>{1, 2, 3});
  for (const char* name : {"x", "x.bin", "x.idx"})
    EXPECT_EQ(TokenFile::open(folder.path(name)).path(), folder.path("x.bin")) << name;
}

TEST(TokenFile, FindsDocumentsInsideARange) {
  const TempFolder folder;
  tests::IndexParts index({2, 3, 0, 1, 4});  // documents begin at tokens 0, 2, 5 (empty), 5, 6
  folder.write("x.idx", index.text());
  folder.write("x.bin", std::vector<uint16_t>(10, 1));
  for (const FileAccess access : {FileAccess::mmap, FileAccess::pread}) {
    const TokenFile file = TokenFile::open(folder.path("x"), {.access = access});
    EXPECT_EQ(starts_in(file, 0, 10), (std::vector<int64_t>{2, 5, 6}));
    EXPECT_EQ(starts_in(file, 2, 6), (std::vector<int64_t>{5}));
    EXPECT_EQ(starts_in(file, 1, 2), (std::vector<int64_t>{}));
    EXPECT_EQ(starts_in(file, 1, 3), (std::vector<int64_t>{2}));
    EXPECT_EQ(starts_in(file, 6, 10), (std::vector<int64_t>{}));
    EXPECT_EQ(starts_in(file, 3, 3), (std::vector<int64_t>{}));
  }
}

TEST(TokenFile, EndsDocumentsAtTheEodTokenWithoutAnIndex) {
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>{5, 0, 0, 7, 8, 0});
  const TokenFile file = TokenFile::open(path, {.eod_id = 0});

  EXPECT_EQ(starts_in(file, 0, 6), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(starts_in(file, 2, 6), (std::vector<int64_t>{3}));
  EXPECT_EQ(starts_in(file, 3, 6), (std::vector<int64_t>{}));
  EXPECT_EQ(file.num_documents(), std::nullopt);
  EXPECT_EQ(starts_in(TokenFile::open(path), 0, 6), (std::vector<int64_t>{}));
}

TEST(TokenFile, NamesTheFirstIdOutsideTheVocabulary) {
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>{1, 2, 300, 400});
  const TokenFile file = TokenFile::open(path, {.vocab_size = 300});
  int32_t ids[2];
  file.read(0, 2, ids);
  try {
    file.read(1, 2, ids);
    FAIL();
  } catch (const tensor::DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(path + ": token 2 has id 300, but ids must be in [0, 300)."));
  }
}

TEST(TokenFile, RefusesIdsThatInt32CannotHold) {
  const TempFolder folder;
  const auto check = [&](uint8_t code, auto value, const std::string& shown) {
    tests::IndexParts index({1});
    index.dtype = code;
    folder.write("x.idx", index.text());
    folder.write("x.bin", std::vector{value});
    int32_t id;
    try {
      TokenFile::open(folder.path("x")).read(0, 1, &id);
      ADD_FAILURE() << shown;
    } catch (const tensor::DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("token 0 has id " + shown));
    }
  };
  check(5, int64_t{1} << 40, "1099511627776");
  check(5, int64_t{-1}, "-1");
  check(4, int32_t{-7}, "-7");
  check(2, int8_t{-3}, "-3");
}

TEST(TokenFile, NoticesThatAFileChanged) {
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>{1, 2, 3});
  for (const FileAccess access : {FileAccess::mmap, FileAccess::pread}) {
    const TokenFile file = TokenFile::open(path, {.access = access});
    file.check_unchanged();
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(5));
    EXPECT_THROW(file.check_unchanged(), tensor::DataError);
  }
}

TEST(TokenFileDeathTest, SaysWhichFileWasCutShortUnderTheMapping) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>(100'000, 7));
  const auto read_after_cut = [&] {
    data::install_sigbus_handler(3);
    const TokenFile file = TokenFile::open(path);
    std::filesystem::resize_file(path, 4096);
    std::filesystem::remove_all(folder.path());
    std::vector<int32_t> ids(100'000);
    file.read(0, 100'000, ids.data());
  };
  EXPECT_EXIT(read_after_cut(), testing::ExitedWithCode(4), "\\[rank 3\\] .*a.bin: byte 4096 cannot be read");
}

TEST(TokenFile, ReportsACutFileInPreadMode) {
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>(100'000, 7));
  const TokenFile file = TokenFile::open(path, {.access = FileAccess::pread});
  std::filesystem::resize_file(path, 4096);
  std::vector<int32_t> ids(100'000);
  EXPECT_THROW(file.read(0, 100'000, ids.data()), tensor::DataError);
}
