#include "data/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "data/token_writer.h"
#include "tensor/error.h"
#include "tests/data/temp_folder.h"

using data::build;
using data::BuildOptions;
using data::DocumentSplit;
using data::inspect;
using data::TokenFile;
using testing::HasSubstr;
using tests::TempFolder;

namespace {

/// Text of each document of a byte-token file.
std::vector<std::string> documents_of(const std::string& path) {
  const TokenFile file = TokenFile::open(path);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < *file.num_documents(); ++i) {
    const int64_t begin = file.document_begin(i), end = file.document_begin(i + 1);
    std::vector<int32_t> ids(end - begin);
    file.read(begin, end - begin, ids.data());
    documents.emplace_back(ids.begin(), ids.end());
  }
  return documents;
}

std::vector<std::string> names_in(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  return names;
}

template <class Error>
void expect_error(const BuildOptions& options, const std::string& part) {
  try {
    build(options);
    ADD_FAILURE() << "built, should say: " << part;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

}  // namespace

TEST(Build, MakesEachLineADocument) {
  const TempFolder folder;
  const auto a = folder.write("a.txt", "one\n\nthree"), b = folder.write("b.txt", "four\n");
  const auto result = build({.inputs = {a, b}, .output_prefix = folder.path("out"), .documents = DocumentSplit::lines});

  EXPECT_EQ(documents_of(folder.path("out")), (std::vector<std::string>{"one\n", "\n", "three", "four\n"}));
  EXPECT_EQ(result.num_documents, 4);
  EXPECT_EQ(result.num_tokens, 15);
  EXPECT_EQ(result.written, (std::vector<std::string>{folder.path("out.bin"), folder.path("out.idx")}));
  EXPECT_EQ(names_in(folder).size(), 4u);
}

TEST(Build, MakesEachFileADocumentAndLeavesEmptyOnesOut) {
  const TempFolder folder;
  const std::string binary("\0\xff\n", 3);
  const auto result = build({.inputs = {folder.write("a", "x\ny"), folder.write("b", ""), folder.write("c", binary)},
                             .output_prefix = folder.path("sub/out")});
  EXPECT_EQ(documents_of(folder.path("sub/out")), (std::vector<std::string>{"x\ny", binary}));
  EXPECT_EQ(result.num_documents, 2);
}

TEST(Build, ReadsTextOutOfJsonl) {
  const TempFolder folder;
  const auto input =
      folder.write("a.jsonl", "{\"text\": \"one \\u00e9\", \"x\": 1}\n\n{\"text\": \"\"}\n{\"text\":\"two\"}");
  const auto result =
      build({.inputs = {input}, .output_prefix = folder.path("out"), .documents = DocumentSplit::jsonl});
  EXPECT_EQ(documents_of(folder.path("out")), (std::vector<std::string>{"one é", "two"}));
  EXPECT_EQ(result.num_empty_documents, 2);
}

TEST(Build, NamesTheLineOfBadJson) {
  const TempFolder folder;
  const auto check = [&](const std::string& line, const std::string& part) {
    const auto input = folder.write("a.jsonl", "{\"text\": \"fine\"}\n" + line + "\n");
    expect_error<tensor::DataError>(
        {.inputs = {input}, .output_prefix = folder.path("out"), .documents = DocumentSplit::jsonl},
        input + ":2: " + part);
  };
  check("{\"text\": ", "is not JSON");
  check("[1, 2]", "has no key \"text\"");
  check("{\"txt\": \"a\"}", "has no key \"text\"");
  check("{\"text\": 5}", "\"text\" is number");
  check("{\"text\": \"\xff\"}", "is not JSON");
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"a.jsonl"}));  // nothing is left behind
}

TEST(Build, EndsDocumentsWithTheEodToken) {
  const TempFolder folder;
  build({.inputs = {folder.write("a.txt", "the\nword\n")},
         .output_prefix = folder.path("out"),
         .tokenizer = tests::golden("gpt2_style.tokenizer.json"),
         .documents = DocumentSplit::lines,
         .append_eod = true});
  const TokenFile file = TokenFile::open(folder.path("out"));
  std::vector<int32_t> ids(file.num_tokens());
  file.read(0, file.num_tokens(), ids.data());

  EXPECT_EQ(file.num_documents(), 2);
  EXPECT_EQ(ids[file.document_begin(1) - 1], 0);
  EXPECT_EQ(ids.back(), 0);
}

TEST(Build, SpreadsValidDocumentsEvenly) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "\n";
  const auto result = build({.inputs = {folder.write("a.txt", text)},
                             .output_prefix = folder.path("out"),
                             .documents = DocumentSplit::lines,
                             .valid_fraction = 0.05});
  EXPECT_EQ(documents_of(folder.path("out_valid")), (std::vector<std::string>{"19\n", "39\n", "59\n", "79\n", "99\n"}));
  EXPECT_EQ(documents_of(folder.path("out_train")).size(), 95u);
  EXPECT_EQ(result.num_documents, 100);
  EXPECT_EQ(result.num_valid_documents, 5);
  EXPECT_EQ(result.written.size(), 4u);
}

TEST(Build, DoesNotDependOnTheNumberOfThreads) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i) + " with <|endoftext|> and wörds\n";
  const auto input = folder.write("a.txt", text);
  const int max_threads = omp_get_max_threads();
  for (const int num_threads : {1, 4}) {
    omp_set_num_threads(num_threads);
    build({.inputs = {input},
           .output_prefix = folder.path("out" + std::to_string(num_threads)),
           .tokenizer = tests::golden("llama3_style.tokenizer.json"),
           .documents = DocumentSplit::lines});
  }
  omp_set_num_threads(max_threads);
  for (const std::string extension : {".bin", ".idx"})
    EXPECT_EQ(tests::read_bytes(folder.path("out1" + extension)), tests::read_bytes(folder.path("out4" + extension)));
}

TEST(Build, ReportsProgressAndRepairs) {
  const TempFolder folder;
  data::BuildProgress last;
  const auto result = build({.inputs = {folder.write("a.txt", "fine\nbro\xffken\n")},
                             .output_prefix = folder.path("out"),
                             .tokenizer = tests::golden("gpt2_style.tokenizer.json"),
                             .documents = DocumentSplit::lines,
                             .progress = [&](const data::BuildProgress& progress) { last = progress; }});
  EXPECT_EQ(last.bytes_read, 13u);
  EXPECT_EQ(last.total_bytes, 13u);
  EXPECT_EQ(last.num_documents, 2);
  EXPECT_EQ(result.num_repaired_documents, 1);
}

TEST(Build, RefusesBadOptionsAndInput) {
  const TempFolder folder;
  const auto input = folder.write("a.txt", "text\n"), empty = folder.write("empty.txt", "");
  const auto out = folder.path("out");
  expect_error<tensor::ConfigError>({.output_prefix = out}, "no input files");
  expect_error<tensor::ConfigError>({.inputs = {input}, .output_prefix = ""}, "is no prefix");
  expect_error<tensor::ConfigError>({.inputs = {input}, .output_prefix = out, .valid_fraction = 1}, "outside [0, 1)");
  expect_error<tensor::ConfigError>({.inputs = {input}, .output_prefix = out, .append_eod = true},
                                    "has no end-of-document");
  expect_error<tensor::DataError>({.inputs = {input, folder.path("no")}, .output_prefix = out}, "no: cannot be opened");
  expect_error<tensor::DataError>({.inputs = {folder.path()}, .output_prefix = out}, "is a directory");
  expect_error<tensor::DataError>({.inputs = {empty}, .output_prefix = out}, "the input has no text");
  expect_error<tensor::DataError>({.inputs = {input}, .output_prefix = out, .valid_fraction = 0.1}, "to evaluate on");
  expect_error<tensor::StorageError>({.inputs = {input}, .output_prefix = input + "/out"}, "folder cannot be created");
  EXPECT_EQ(names_in(folder).size(), 2u);
}

TEST(Build, ReplacesOutputOnlyWhenTold) {
  const TempFolder folder;
  BuildOptions options{.inputs = {folder.write("a.txt", "old")}, .output_prefix = folder.path("out")};
  build(options);
  folder.write("a.txt", "new text");
  expect_error<tensor::ConfigError>(options, "out.bin exists");
  EXPECT_EQ(documents_of(folder.path("out")), (std::vector<std::string>{"old"}));

  options.overwrite = true;
  build(options);
  EXPECT_EQ(documents_of(folder.path("out")), (std::vector<std::string>{"new text"}));
}

TEST(BuildDeathTest, ReportsAFailingWrite) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // OpenMP's threads do not survive a plain fork
  const TempFolder folder;
  const auto write_too_much = [&] {
    std::signal(SIGXFSZ, SIG_IGN);  // a file size limit fails like a full disk, with another errno
    const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      build({.inputs = {folder.write("a.txt", std::string(900, 'x'))}, .output_prefix = folder.path("out")});
    } catch (const tensor::StorageError& error) {
      std::fputs(error.what(), stderr);
      const bool is_clean = names_in(folder).size() == 1;
      std::filesystem::remove_all(folder.path());
      std::_Exit(is_clean ? 0 : 1);
    }
  };
  EXPECT_EXIT(write_too_much(), testing::ExitedWithCode(0), "out.bin.tmp-.* cannot be written: File too large");
}

TEST(TokenWriter, ListsLongDocumentsAsSeveralSequences) {
  const TempFolder folder;
  data::TokenWriter writer(folder.path("x"), data::TokenDtype::i32, /*max_sequence=*/3);
  writer.add_document(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 70'000});
  writer.add_document(std::vector<int32_t>{8});
  EXPECT_FALSE(std::filesystem::exists(folder.path("x.bin")));
  writer.publish();

  const TokenFile file = TokenFile::open(folder.path("x"));
  EXPECT_EQ(file.num_documents(), 2);
  EXPECT_EQ(file.document_begin(1), 7);
  int32_t id;
  file.read(6, 1, &id);
  EXPECT_EQ(id, 70'000);
}

TEST(Inspect, MeasuresAMegatronFile) {
  const TempFolder folder;
  build({.inputs = {folder.write("a.txt", "a\x1b[31m\nlonger line\n\n")},
         .output_prefix = folder.path("out"),
         .documents = DocumentSplit::lines});
  const auto tokenizer = data::load_tokenizer("bytes");
  const data::Inspection inspection = inspect(folder.path("out"), {}, tokenizer.get());

  EXPECT_EQ(inspection.dtype, "u16");
  EXPECT_EQ(inspection.num_tokens, 20);
  EXPECT_EQ(inspection.num_documents, 3);
  EXPECT_EQ(inspection.min_document, 1);
  EXPECT_EQ(inspection.max_document, 12);
  EXPECT_NEAR(inspection.mean_document, 20.0 / 3, 1e-9);
  EXPECT_EQ(inspection.largest_id, 'r');
  EXPECT_EQ(inspection.first_text, "a\\x1b[31m\\nlonger line\\n\\n");
  EXPECT_THAT(to_text(inspection), HasSubstr("documents    3 (tokens each: min 1, mean 6.7, max 12)"));
}

TEST(Inspect, CountsDocumentsByEodToken) {
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>{5, 0, 7, 8, 0});
  const data::Inspection inspection = inspect(path, {.eod_id = 0});
  EXPECT_EQ(inspection.num_documents, 2);
  EXPECT_EQ(inspection.max_document, 3);
}

TEST(Inspect, RefusesIdsOutsideTheVocabulary) {
  const TempFolder folder;
  const auto path = folder.write("a.bin", std::vector<uint16_t>{5, 0, 700, 8, 0});
  EXPECT_THROW(inspect(path, {.vocab_size = 256}), tensor::DataError);
}
