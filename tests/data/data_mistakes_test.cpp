/// What people hand over instead of a token file, and how files break. Each must give one clear DataError.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "data/dataset.h"
#include "data/token_file.h"
#include "tensor/error.h"
#include "tests/data/temp_folder.h"

using data::TokenFile;
using testing::HasSubstr;
using tests::IndexParts;
using tests::TempFolder;

namespace {

class DataMistakes : public testing::Test {
 protected:
  /// Opens `name` and expects a message with all of `parts`, the path first, a fix last.
  void expect_refused(const std::string& name, const std::vector<std::string>& parts) {
    try {
      TokenFile::open(folder_.path(name));
      ADD_FAILURE() << name << " was accepted";
    } catch (const tensor::DataError& error) {
      const std::string message = error.what();
      EXPECT_THAT(message, testing::StartsWith(folder_.path()));
      for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
      EXPECT_THAT(message, HasSubstr("\n  Fix: "));
    }
  }

  /// x.idx changed by `change`, beside the x.bin that the unchanged one describes: 3 documents of 2, 3 and 4 tokens.
  void write_pair(const std::function<void(IndexParts&)>& change = [](IndexParts&) {}) {
    IndexParts index({2, 3, 4});
    change(index);
    folder_.write("x.idx", index.text());
    folder_.write("x.bin", std::vector<uint16_t>(9, 1));
  }

  static std::string llmc(int32_t magic, int32_t version, uint32_t num_tokens, size_t token_bytes) {
    std::vector<uint32_t> header(256);
    header[0] = magic, header[1] = version, header[2] = num_tokens;
    return std::string(reinterpret_cast<const char*>(header.data()), 1024) + std::string(token_bytes, '\1');
  }

  TempFolder folder_;
};

}  // namespace

TEST_F(DataMistakes, AcceptsTheUnbrokenPair) {
  write_pair();
  EXPECT_EQ(TokenFile::open(folder_.path("x")).num_tokens(), 9);
}

TEST_F(DataMistakes, MissingFile) {
  expect_refused("nowhere", {"no such file"});
  expect_refused("nowhere.bin", {"No such file"});
}

TEST_F(DataMistakes, MissingBin) {
  write_pair();
  std::filesystem::remove(folder_.path("x.bin"));
  expect_refused("x.idx", {"x.bin: cannot be opened: No such file"});
}

TEST_F(DataMistakes, MissingIndexOfAPrefix) {
  write_pair();
  std::filesystem::remove(folder_.path("x.idx"));
  expect_refused("x", {"x.bin exists, but", "x.idx does not"});
}

TEST_F(DataMistakes, MissingIndexOf32BitTokens) {
  std::vector<int32_t> ids(1000);
  for (int i = 0; i < 1000; ++i) ids[i] = 100 + i * 77;
  folder_.write("x.bin", ids);
  expect_refused("x.bin", {"32-bit tokens", "index is missing"});
}

TEST_F(DataMistakes, Directory) {
  std::filesystem::create_directory(folder_.path("sub"));
  expect_refused("sub", {"is a directory"});
}

TEST_F(DataMistakes, Fifo) {
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  expect_refused("pipe", {"not a regular file"});
}

TEST_F(DataMistakes, UnreadableFile) {
  std::filesystem::create_symlink("loop.bin", folder_.path("loop.bin"));  // unreadable for root too
  expect_refused("loop.bin", {"cannot be opened"});
}

TEST_F(DataMistakes, FileWithoutPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  folder_.write("x.bin", std::vector<uint16_t>(9, 1));
  chmod(folder_.path("x.bin").c_str(), 0);
  expect_refused("x.bin", {"Permission denied"});
}

TEST_F(DataMistakes, EmptyFile) {
  folder_.write("x.bin", "");
  expect_refused("x.bin", {"is empty"});
}

TEST_F(DataMistakes, EmptyIndex) {
  write_pair();
  folder_.write("x.idx", "");
  expect_refused("x", {"x.idx: has 0 bytes"});
}

TEST_F(DataMistakes, EmptyBinBesideAnIndex) {
  write_pair();
  folder_.write("x.bin", "");
  expect_refused("x", {"x.idx:", "0 tokens"});
}

TEST_F(DataMistakes, TruncatedIndex) {
  write_pair();
  const std::string whole = IndexParts({2, 3, 4}).text();
  for (size_t size = 0; size < whole.size(); ++size) {
    folder_.write("x.idx", whole.substr(0, size));
    expect_refused("x", {"x.idx: "});
  }
}

TEST_F(DataMistakes, TruncatedBin) {
  write_pair();
  folder_.write("x.bin", std::vector<uint16_t>(8, 1));
  expect_refused("x", {"end at token 9", "8 tokens (16 bytes)"});
}

TEST_F(DataMistakes, BinOfAnOddLength) {
  write_pair();
  folder_.write("x.bin", std::string(17, '\1'));
  expect_refused("x", {"17 bytes, not a multiple of the 2 bytes of a u16 token"});
}

TEST_F(DataMistakes, IndexOfAnotherFormat) {
  write_pair([](IndexParts& index) { index.magic[0] = 'T'; });
  expect_refused("x", {"does not begin with MMIDIDX"});
}

TEST_F(DataMistakes, IndexOfAnotherVersion) {
  write_pair([](IndexParts& index) { index.version = 2; });
  expect_refused("x", {"index version 2"});
}

TEST_F(DataMistakes, FloatDtype) {
  write_pair([](IndexParts& index) { index.dtype = 7; });
  expect_refused("x", {"fp32 numbers (dtype 7)"});
  write_pair([](IndexParts& index) { index.dtype = 6; });
  expect_refused("x", {"fp64 numbers (dtype 6)"});
}

TEST_F(DataMistakes, UnknownDtype) {
  for (const uint8_t dtype : {0, 9, 255}) {
    write_pair([&](IndexParts& index) { index.dtype = dtype; });
    expect_refused("x", {"dtype " + std::to_string(dtype), "unknown"});
  }
}

TEST_F(DataMistakes, CountsThatOverflow) {
  for (const uint64_t count : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{1} << 61, ~uint64_t{0} / 12 + 2}) {
    write_pair([&](IndexParts& index) { index.num_sequences = count; });
    expect_refused("x", {"x.idx: "});
    write_pair([&](IndexParts& index) { index.num_bounds = count; });
    expect_refused("x", {"x.idx: "});
  }
}

TEST_F(DataMistakes, CountsThatDoNotFitTheFile) {
  write_pair([](IndexParts& index) { index.num_sequences = 4; });
  expect_refused("x", {"4 sequences", "bytes, but"});
}

TEST_F(DataMistakes, MultimodalIndex) {
  write_pair();
  folder_.write("x.idx", IndexParts({2, 3, 4}).text() + std::string(3, '\0'));
  expect_refused("x", {"multimodal"});
}

TEST_F(DataMistakes, NegativeLength) {
  write_pair([](IndexParts& index) { index.lengths[1] = -3; });
  expect_refused("x", {"sequence 1 has -3 tokens"});
}

TEST_F(DataMistakes, LengthsThatDoNotMeetOffsets) {
  write_pair([](IndexParts& index) { index.lengths[0] = 3; });
  expect_refused("x", {"sequence 1 begins at token 2, but the one before ends at 3"});
}

TEST_F(DataMistakes, OffsetsOutsideTheBin) {
  for (const int64_t offset : {int64_t{-2}, int64_t{1} << 62, int64_t{3}, int64_t{20}}) {
    write_pair([&](IndexParts& index) { index.offsets[1] = offset; });
    expect_refused("x", {"sequence 1 begins at byte " + std::to_string(offset)});
  }
}

TEST_F(DataMistakes, DocumentsOutOfOrder) {
  write_pair([](IndexParts& index) { index.documents = {0, 2, 1, 3}; });
  expect_refused("x", {"document 2 begins with sequence 1, the one before with 2"});
}

TEST_F(DataMistakes, DocumentsOutsideTheSequences) {
  for (const int64_t sequence : {int64_t{-1}, int64_t{4}, int64_t{1} << 62}) {
    write_pair([&](IndexParts& index) { index.documents[1] = sequence; });
    expect_refused("x", {"document 1 begins with sequence " + std::to_string(sequence)});
    write_pair([&](IndexParts& index) { index.documents[3] = sequence; });
    expect_refused("x", {"but there are 3"});
  }
}

TEST_F(DataMistakes, NoDocuments) {
  write_pair([](IndexParts& index) {
    index.documents = {};
    index.num_bounds = 0;
  });
  expect_refused("x", {"0 document bounds"});
}

TEST_F(DataMistakes, TextGivenAsData) {
  const std::string line = "In the beginning God created the heaven and the earth.\n";
  std::string text;
  for (int i = 0; i < 3000; ++i) text += line;
  folder_.write("english.txt", text);
  folder_.write("short.bin", line);
  folder_.write("russian.bin", "Съешь же ещё этих мягких французских булок, да выпей чаю.\n");
  folder_.write("chinese.txt", "我能吞下玻璃而不伤身体。今天的天气很好，我们去公园吧！");
  folder_.write("latin1.bin",
                "caf\xe9 au lait, d\xe9j\xe0 vu, na\xefve and other words that are mostly ASCII letters\n");
  for (const char* name : {"english.txt", "short.bin", "russian.bin", "chinese.txt", "latin1.bin"})
    expect_refused(name, {"is text", "trainer data build"});
}

TEST_F(DataMistakes, ArchivesAndOtherFormats) {
  std::string noise;
  for (int i = 0; i < 4000; ++i) noise.push_back(static_cast<char>(i * i * 131 + i * 7));
  folder_.write("a.bin", "\x1f\x8b" + noise);
  expect_refused("a.bin", {"gzip"});
  folder_.write("b.bin", "\x93NUMPY" + noise);
  expect_refused("b.bin", {"NumPy"});
  folder_.write("c.bin", "PAR1" + noise);
  expect_refused("c.bin", {"Parquet"});
}

TEST_F(DataMistakes, HeaderlessFileOfAnOddLength) {
  folder_.write("x.bin", std::string("\1\0\2\0\3\0\4", 7));
  expect_refused("x.bin", {"has 7 bytes", "even number"});
}

TEST_F(DataMistakes, LlmcFileOfAnotherVersion) {
  folder_.write("x.bin", llmc(20240520, 7, 4, 8));
  expect_refused("x.bin", {"20240520 version 7"});
  folder_.write("x.bin", llmc(20240801, 1, 4, 16));
  expect_refused("x.bin", {"20240801 version 1"});
  folder_.write("x.bin", llmc(20240326, 3, 4, 16));  // a model, not tokens
  expect_refused("x.bin", {"20240326 version 3"});
}

TEST_F(DataMistakes, LlmcFileCutShort) {
  folder_.write("x.bin", llmc(20240520, 1, 100, 198));
  expect_refused("x.bin", {"1222 bytes", "100 u16 tokens, which need 1224"});
  folder_.write("x.bin", llmc(20240520, 1, 100, 0).substr(0, 500));
  expect_refused("x.bin", {"500 bytes", "header"});
}

TEST_F(DataMistakes, LlmcCountThatOverflows) {
  folder_.write("x.bin", llmc(20240801, 7, 0xFFFFFFFFu, 16));
  expect_refused("x.bin", {"4294967295 u32 tokens"});
  folder_.write("x.bin", llmc(20240801, 7, 0, 0));
  expect_refused("x.bin", {"0 tokens"});
}

TEST_F(DataMistakes, TooFewTokensForOneSample) {
  folder_.write("x.bin", std::vector<uint16_t>(8, 1));
  try {
    data::Dataset::open_train({.train = {{.path = folder_.path("x.bin")}}}, {.seq_len = 8, .vocab_size = 10});
    FAIL();
  } catch (const tensor::DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has 8 tokens; one sample needs model.seq_len + 1 = 9"));
  }
}
