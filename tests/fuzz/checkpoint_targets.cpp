/// What a checkpoint is read from. Most changes of bytes meet a hash; so some inputs get hashes that fit again.

#include <fmt/core.h>

#include <filesystem>

#include "checkpoint/catalog.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/conversion.h"
#include "checkpoint/format.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verification.h"
#include "tests/fuzz/checkpoint_corpus.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/tables_file.h"
#include "tests/fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kJsonWords = {
    "{",     "}",    "[",     "]",   "\"",   ":",       ",",     "null",
    "1e999", "-0.0", "\\u00", "000", "true", "xxh3_64", "rank_", "18446744073709551616"};

class ManifestTarget final : public Target {
 public:
  explicit ManifestTarget(const std::string& folder)
      : corpus_(folder),
        path_(corpus_.path() + "/MANIFEST.json"),
        text_(tests::read_file(path_)),
        json_(Json::parse(text_)) {}

  void feed(Random& random) override {
    tests::write_file(path_, draw(random));
    checkpoint::read_manifest(corpus_.path());
  }

 private:
  std::string draw(Random& random) const {
    switch (random.below(8)) {
      case 0:
        return with_other_bytes(text_, random);
      case 1:
        return with_other_words(text_, kJsonWords, random);
      case 2:
        return nested_lists(random.below(20'000));
      default:
        return with_own_hash(with_other_values(json_, random));
    }
  }
  static std::string with_own_hash(Json json) {
    if (!json.is_object()) return json.dump();
    json.erase("xxh3_64");
    const std::string text = json.dump();
    json["xxh3_64"] = fmt::format("{:016x}", checkpoint::hash_bytes(text.data(), std::ssize(text)));
    return json.dump(1);
  }

  CheckpointCorpus corpus_;
  std::string path_, text_;
  Json json_;
};

/// index.h5, or one shard.
class TablesTarget final : public Target {
 public:
  TablesTarget(const std::string& folder, const char* format_name)
      : is_index_(format_name == checkpoint::format::kIndexFormatName),
        corpus_(folder),
        path_(folder + "/tables.h5"),
        file_(corpus_.path() + (is_index_ ? "/index.h5" : "/shards/000/rank_00001.h5"), format_name) {}

  void feed(Random& random) override {
    draw(random);
    const checkpoint::InputFile input(path_);
    if (is_index_) {
      checkpoint::read_index(input);
    } else {
      checkpoint::read_shard(input, "shards/000/rank_00001.h5");
    }
  }

 private:
  void draw(Random& random) const {
    switch (random.below(4)) {
      case 0:
        return tests::write_file(path_, with_other_bytes(file_.bytes(), random));
      case 1:
        return tests::write_file(path_, file_.with_other_text(random));
      default:
        return file_.write_with_other_numbers(path_, random);
    }
  }

  bool is_index_;
  CheckpointCorpus corpus_;
  std::string path_;
  TablesFile file_;
};

class SingleFileTarget final : public Target {
 public:
  explicit SingleFileTarget(const std::string& folder)
      : corpus_(folder), path_(folder + "/changed.h5"), bytes_(tests::read_file(corpus_.single_file())) {}

  void feed(Random& random) override {
    tests::write_file(path_, with_other_bytes(bytes_, random));
    checkpoint::inspect(path_);
    checkpoint::load(path_, corpus_.state().named());
  }

 private:
  CheckpointCorpus corpus_;
  std::string path_, bytes_;
};

/// The folder as a whole, and what repairs it.
class FolderTarget final : public Target {
 public:
  explicit FolderTarget(const std::string& folder)
      : corpus_(folder), path_(folder + "/changed"), output_(folder + "/whole.h5") {
    for (const std::string& name : corpus_.files()) files_.push_back(tests::read_file(corpus_.path() + "/" + name));
  }

  void feed(Random& random) override {
    fs::remove_all(path_);
    fs::create_directories(path_ + "/shards/000");
    const size_t changed = random.below(files_.size());
    for (size_t i = 0; i < files_.size(); ++i) {
      if (i == changed && random.one_in(4)) continue;  // lost
      const bool is_changed = i == changed || random.one_in(8);
      tests::write_file(path_ + "/" + corpus_.files()[i], is_changed ? with_other_bytes(files_[i], random) : files_[i]);
    }
    checkpoint::verify(path_);
    checkpoint::rebuild_index(path_);
    checkpoint::verify(path_);
    fs::remove(output_);
    checkpoint::consolidate(path_, output_);
  }

 private:
  CheckpointCorpus corpus_;
  std::string path_, output_;
  std::vector<std::string> files_;
};

}  // namespace

std::vector<TargetEntry> checkpoint_targets() {
  const std::vector<tensor::ExitCode> refusals = {tensor::ExitCode::checkpoint};
  return {
      {"manifest", refusals, [](const std::string& folder) { return std::make_unique<ManifestTarget>(folder); }},
      {"index", refusals,
       [](const std::string& folder) {
         return std::make_unique<TablesTarget>(folder, checkpoint::format::kIndexFormatName);
       }},
      {"shard", refusals,
       [](const std::string& folder) {
         return std::make_unique<TablesTarget>(folder, checkpoint::format::kShardFormatName);
       }},
      {"single_file", refusals, [](const std::string& folder) { return std::make_unique<SingleFileTarget>(folder); }},
      {"folder", refusals, [](const std::string& folder) { return std::make_unique<FolderTarget>(folder); }},
  };
}

}  // namespace fuzz
