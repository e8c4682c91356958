#include "checkpoint/verification.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <optional>
#include <set>

#include "checkpoint/block_reader.h"
#include "checkpoint/foreign_file.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/read_ahead.h"
#include "checkpoint/shard.h"

namespace checkpoint {
namespace {

class Verifier {
 public:
  explicit Verifier(const std::string& path) : path_(path) {}

  Verification run() {
    std::optional<OpenCheckpoint> opened;
    attempt([&] { opened = open_checkpoint(path_); });
    const bool is_sharded = is_folder(path_);
    struct stat status {};
    const std::string index = path_ + "/" + kIndexFile;
    if (!opened && is_sharded &&
        ::stat(index.c_str(), &status) ==
            0) {  // where only one of manifest, index or sizes is wrong, the rest can be looked at
      attempt([&] { opened = OpenCheckpoint{read_index(InputFile(index)), path_}; });
    }
    if (!opened) return std::move(found_);
    found_.num_files = std::ssize(opened->index.files);
    found_.num_tensors = std::ssize(opened->index.tensors);
    for (int64_t file = 0; file < found_.num_files; ++file) {
      if (is_there(*opened, file) && is_sharded) attempt([&] { check_description(*opened, file); });
    }
    check_blocks(*opened);
    return std::move(found_);
  }

 private:
  template <class Body>
  void attempt(const Body& body) {
    try {
      body();
    } catch (const DamagedError& error) {
      const std::string text = error.what();
      if (seen_.insert(text).second) found_.damages.push_back(text);
    }
  }

  bool is_there(const OpenCheckpoint& opened, int64_t file) {
    const std::string path = path_of(opened, file);
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return true;
    std::set<std::string> names;
    for (const StoredFragment& stored : opened.index.fragments) {
      if (stored.file == file) names.insert(opened.index.tensors[static_cast<size_t>(stored.fragment.tensor)].name);
    }
    missing_.insert(file);
    found_.damages.push_back(fmt::format("{}: it is missing, and with it parts of {} tensors, as of \"{}\".", path,
                                         names.size(), names.empty() ? std::string() : *names.begin()));
    return false;
  }

  static std::string path_of(const OpenCheckpoint& opened, int64_t file) {
    return opened.folder + "/" + opened.index.files[static_cast<size_t>(file)].path;
  }

  /// What a shard says of itself is what the index says of it, and HDF5 finds its datasets where the index has them.
  static void check_description(const OpenCheckpoint& opened, int64_t file) {
    const Index& index = opened.index;
    const InputFile input(path_of(opened, file));
    const Index own = read_shard(input, index.files[static_cast<size_t>(file)].path);
    const ForeignFile hdf5_file(input);
    std::set<std::string> described;
    for (const StoredFragment& stored : own.fragments) described.insert(key_of(own, stored));
    int64_t count = 0;
    for (const StoredFragment& stored : index.fragments) {
      if (stored.file != file) continue;
      ++count;
      const TensorInfo& info = index.tensors[static_cast<size_t>(stored.fragment.tensor)];
      if (!described.contains(key_of(index, stored))) {
        hdf5_file.damaged(fmt::format("of \"{}\" it tells something else than the index", info.name));
      }
      check_dataset(hdf5_file, index, stored);
    }
    if (count != std::ssize(own.fragments) || own.info != index.info) {
      hdf5_file.damaged("it tells something else than the index");
    }
  }

  static void check_dataset(const ForeignFile& file, const Index& index, const StoredFragment& stored) {
    const TensorInfo& info = index.tensors[static_cast<size_t>(stored.fragment.tensor)];
    const std::string name = dataset_name(info, stored.fragment);
    const hdf5::Handle dataset(H5Dopen2(file.root(), name.c_str(), H5P_DEFAULT), H5Dclose);
    file.require(static_cast<bool>(dataset), "\"" + name + "\"");
    file.require_plain_storage(dataset.id(), name);
    const int64_t bytes = stored.fragment.numel() * element_bytes(index, stored.fragment);
    if (file.checked_offset(dataset.id(), name, bytes) != stored.offset) {
      file.damaged(fmt::format("\"{}\" does not begin where the index says", name));
    }
  }

  /// Everything that index and shard have to agree on.
  static std::string key_of(const Index& index, const StoredFragment& stored) {
    const Fragment& f = stored.fragment;
    const TensorInfo& info = index.tensors[static_cast<size_t>(f.tensor)];
    std::string key = fmt::format("{} {} {} {} {} {} {} {} {} {}", info.name, to_string(info.dtype), info.shape.str(),
                                  f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns, f.range.begin,
                                  f.range.end, stored.offset);
    for (const Block& block : blocks_of(index, stored)) key += fmt::format(" {:016x}", block.hash);
    return key;
  }

  void check_blocks(const OpenCheckpoint& opened) {
    std::vector<ReadAhead::Wanted> blocks;
    for (const Block& block : ReadAhead::in_reading_order(blocks_of(opened.index))) {
      if (!missing_.contains(block.file)) blocks.push_back({block});
    }
    ReadAhead reading(opened, blocks);
    for (size_t i = 0; i < blocks.size(); ++i) {
      attempt([&] { found_.bytes += std::ssize(reading.next().bytes); });
      ++found_.num_blocks;
    }
  }

  const std::string& path_;
  Verification found_;
  std::set<std::string> seen_;
  std::set<int64_t> missing_;
};

}  // namespace

Verification verify(const std::string& path) { return Verifier(path).run(); }

}  // namespace checkpoint
