/// Feeds the readers of manifests, indexes, shards and single files with valid files that were changed at random, some
/// with hashes that fit again: parser_fuzzer [--seconds N] [--seed S]. Each is refused with a CheckpointError or read;
/// anything else (another exception, a crash, a sanitizer's complaint) ends it, and the seed brings it back.

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/catalog.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/format.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tables.h"
#include "tests/checkpoint/sharded_state.h"
#include "tests/support/temporary_folder.h"

/// HDF5 1.10 itself loses some memory when it fails to open a damaged file.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace {

using checkpoint::Index;
using Json = nlohmann::ordered_json;

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed) {
    tests::fill_sharded(state_);
    checkpoint_ = tests::save_in_shards(folder_.path(), 7, state_, 2, rank_.device());
    checkpoint::save(folder_ / "single.h5", tests::run_info(), state_.named());
    index_ = checkpoint::open_checkpoint(checkpoint_).index;
    manifest_ = Json::parse(tests::read_file(checkpoint_ + "/MANIFEST.json"));
    for (const std::string& path : {checkpoint_ + "/index.h5", checkpoint_ + "/shards/000/rank_00001.h5",
                                    folder_ / "single.h5", checkpoint_ + "/MANIFEST.json"}) {
      files_.push_back(tests::read_file(path));
    }
  }

  void run_once() {
    switch (random_() % 4) {
      case 0:
        return read_flipped();
      case 1:
        return read_manifest_with_other_values();
      default:
        return read_index_with_other_numbers();
    }
  }

  int64_t num_read = 0, num_refused = 0;

 private:
  template <class Read>
  void expect_refused_or_read(const Read& read) {
    try {
      read();
      ++num_read;
    } catch (const tensor::CheckpointError&) {
      ++num_refused;
    }
  }

  int64_t any_number() {
    constexpr int64_t kSpecial[] = {0,           1,         -1,        INT64_MAX, INT64_MIN,       INT64_MAX - 1,
                                    1 << 24,     1LL << 31, 1LL << 32, 1LL << 40, (1LL << 50) + 1, (1LL << 56) + 1,
                                    -(1LL << 40)};
    if (random_() % 2 == 0) return kSpecial[random_() % std::size(kSpecial)];
    return static_cast<int64_t>(random_() % 64);
  }

  /// Bytes: most changes meet a hash; some meet HDF5.
  void read_flipped() {
    const size_t which = random_() % files_.size();
    std::string bytes = files_[which];
    for (uint64_t i = 0; i <= random_() % 4; ++i) bytes[random_() % bytes.size()] ^= static_cast<char>(random_());
    if (random_() % 8 == 0) bytes.resize(random_() % bytes.size());
    const bool is_manifest = which == 3;
    const std::string path = folder_ / (is_manifest ? "MANIFEST.json" : "changed.h5");
    tests::write_file(path, bytes);
    expect_refused_or_read([&] {
      if (is_manifest) return (void)checkpoint::read_manifest(folder_.path());
      const checkpoint::InputFile input(path);
      if (which == 0) return (void)checkpoint::read_index(input);
      if (which == 1) return (void)checkpoint::read_shard(input, "x.h5");
      checkpoint::read_catalog(input);
    });
  }

  Json any_value() {
    switch (random_() % 8) {
      case 0:
        return any_number();
      case 1:
        return 1e300;
      case 2:
        return nullptr;
      case 3:
        return "../../etc/passwd";
      case 4:
        return Json::array({any_number(), "x"});
      case 5:
        return Json::object({{"path", "index.h5"}, {"bytes", any_number()}});
      case 6:
        return std::numeric_limits<uint64_t>::max();
      default:
        return std::string(random_() % 300, 'a');
    }
  }

  /// A random value inside, at any depth.
  Json& pick(Json& json) {
    if (!json.is_structured() || json.empty() || random_() % 6 == 0) return json;
    auto at = json.begin();
    std::advance(at, static_cast<int64_t>(random_() % json.size()));
    return pick(*at);
  }

  void read_manifest_with_other_values() {
    Json json = manifest_;
    for (uint64_t i = 0; i <= random_() % 2; ++i) {
      Json& value = pick(json);
      if (&value != &json) value = any_value();
    }
    json.erase("xxh3_64");
    const std::string text = json.dump();
    json["xxh3_64"] = fmt::format("{:016x}", checkpoint::hash_bytes(text.data(), std::ssize(text)));
    const std::string path = checkpoint_ + "/MANIFEST.json";
    tests::write_file(path, json.dump());
    expect_refused_or_read([&] { checkpoint::read_manifest(checkpoint_); });
  }

  void change(Index& index) {
    checkpoint::StoredFragment& stored = index.fragments[random_() % index.fragments.size()];
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
                                &index.files[random_() % index.files.size()].bytes,
                                &index.info.progress.step};
    *numbers[random_() % std::size(numbers)] = any_number();
    if (random_() % 8 == 0) {
      index.tensors[random_() % index.tensors.size()].shape = {std::abs(any_number() / 2), std::abs(any_number() / 2)};
    }
    if (random_() % 8 == 0) index.fragments.push_back(stored);
    if (random_() % 8 == 0) index.fragments.erase(index.fragments.begin());
    if (random_() % 16 == 0) index.block_hashes.pop_back();
    if (random_() % 16 == 0) index.files[0].path = "../x";
    if (random_() % 16 == 0) index.tensors[0].name = std::string(random_() % 600, '/');
  }

  /// Tables whose hash fits.
  void read_index_with_other_numbers() {
    Index index = index_;
    for (uint64_t i = 0; i <= random_() % 3; ++i) change(index);
    const std::string path = folder_ / "tables.h5";
    {
      checkpoint::TemporaryFile file(path);
      checkpoint::Layout layout(file);
      layout.describe_run(index.info, checkpoint::format::kIndexFormatName, 0);
      const checkpoint::TableWriter tables(layout, index);
      layout.close();
      tables.write(file, index);
      file.publish();
    }
    expect_refused_or_read([&] { checkpoint::read_index(checkpoint::InputFile(path)); });
  }

  std::mt19937_64 random_;
  tests::TemporaryFolder folder_;
  tests::OneRank rank_;
  tests::StateOfARun state_;
  std::string checkpoint_;
  Index index_;
  Json manifest_;
  std::vector<std::string> files_;
};

int64_t option(int argc, char** argv, const char* name, int64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return std::stoll(argv[i + 1]);
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(option(argc, argv, "--seconds", 5));
  Fuzzer fuzzer(static_cast<uint64_t>(option(argc, argv, "--seed", 1)));
  while (std::chrono::steady_clock::now() < end) fuzzer.run_once();
  fmt::print("{} files refused, {} read\n", fuzzer.num_refused, fuzzer.num_read);
  return fuzzer.num_refused > 0 && fuzzer.num_read > 0 ? 0 : 1;
}
