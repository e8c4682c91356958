#include "checkpoint/block_reader.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>

#include "checkpoint/catalog.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"

namespace checkpoint {

namespace {

/// A file of save() as a checkpoint of one shard, in which every tensor is one fragment with one hash.
Index index_of_single_file(const InputFile& file, const std::string& name) {
  const Catalog catalog = read_catalog(file);
  Index index{
      .info = catalog.info, .tensors = {}, .files = {{name, file.bytes()}}, .fragments = {}, .block_hashes = {}};
  index.block_bytes = std::numeric_limits<int64_t>::max();
  for (const StoredTensor& stored : catalog.tensors) {
    const TensorInfo& info = stored.hashed.info;
    const Box whole = whole_box(info.shape);
    index.fragments.push_back(
        {.fragment = {.tensor = std::ssize(index.tensors), .box = whole, .range = {0, whole.numel()}},
         .file = 0,
         .offset = stored.offset,
         .first_block = std::ssize(index.block_hashes)});
    index.tensors.push_back(info);
    index.block_hashes.push_back(stored.hashed.hash);
  }
  check_index(index, file.path());
  return index;
}

}  // namespace

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

OpenCheckpoint open_checkpoint(const std::string& path) {
  if (!is_folder(path)) {
    const InputFile file(path);
    return {index_of_single_file(file, path.substr(path.find_last_of('/') + 1)), folder_of(path)};
  }
  const Manifest manifest = read_manifest(path);
  OpenCheckpoint opened{read_index(InputFile(path + "/" + kIndexFile)), path};
  const auto differs = [](const ShardFile& a, const ShardFile& b) { return a.path != b.path || a.bytes != b.bytes; };
  const std::vector<ShardFile>& files = opened.index.files;
  bool is_same = files.size() == manifest.files.size() && opened.index.info.progress.step == manifest.step;
  for (size_t i = 0; is_same && i < files.size(); ++i) is_same = !differs(files[i], manifest.files[i]);
  if (!is_same) {
    throw DamagedError(fmt::format("{}: this checkpoint is damaged: {} and {} tell of different files.", path,
                                   kManifestFile, kIndexFile));
  }
  return opened;
}

std::vector<Block> blocks_of(const Index& index, const StoredFragment& stored) {
  std::vector<Block> blocks;
  const int64_t element = element_bytes(index, stored.fragment);
  const int64_t most = index.block_bytes / element;
  auto hash = index.block_hashes.begin() + stored.first_block;
  for (int64_t begin = 0; begin < stored.fragment.numel();) {
    const int64_t count = std::min(most, stored.fragment.numel() - begin);
    Block block{
        .part = stored.fragment, .file = stored.file, .offset = stored.offset + begin * element, .hash = *hash++};
    block.part.range = {stored.fragment.range.begin + begin, stored.fragment.range.begin + begin + count};
    blocks.push_back(block);
    begin += count;
  }
  return blocks;
}

std::vector<Block> blocks_of(const Index& index) {
  std::vector<Block> blocks;
  for (const StoredFragment& stored : index.fragments) {
    for (const Block& block : blocks_of(index, stored)) blocks.push_back(block);
  }
  return blocks;
}

int64_t bytes_of(const Index& index, const Block& block) {
  return block.part.numel() * element_bytes(index, block.part);
}

const InputFile& BlockReader::file_of(const Block& block) {
  if (!input_ || input_file_ != block.file) {
    input_.reset();
    const ShardFile& file = checkpoint_.index.files[static_cast<size_t>(block.file)];
    input_ = std::make_unique<InputFile>(checkpoint_.folder + "/" + file.path);
    input_file_ = block.file;
  }
  return *input_;
}

void BlockReader::announce(const Block& block) {
  try {
    file_of(block).announce(block.offset, bytes_of(checkpoint_.index, block));
  } catch (const tensor::Error&) {  // said when it is read
  }
}

void BlockReader::read(const Block& block, std::byte* to) {
  const InputFile& input = file_of(block);
  const TensorInfo& info = checkpoint_.index.tensors[static_cast<size_t>(block.part.tensor)];
  const int64_t bytes = bytes_of(checkpoint_.index, block);
  const auto damaged = [&](const std::string& why) {
    throw DamagedError(fmt::format("{}: this checkpoint is damaged: \"{}\" {}, {} bytes at offset {}, {}.",
                                   input.path(), info.name, info.shape.str(), bytes, block.offset, why));
  };
  if (block.offset > input.bytes() - bytes) {
    damaged(fmt::format("lies beyond the end of the file at {}", input.bytes()));
  }
  input.read_at(block.offset, to, bytes);
  const uint64_t found = hash_bytes(to, bytes);
  if (found != block.hash) {
    damaged(fmt::format("has the hash {:016x}, and was written with {:016x}", found, block.hash));
  }
}

std::vector<std::byte> BlockReader::read_tensor(size_t tensor) {
  const Index& index = checkpoint_.index;
  const Box box = whole_box(index.tensors[tensor].shape);
  const Fragment whole{.tensor = static_cast<int64_t>(tensor), .box = box, .range = {0, box.numel()}};
  const int64_t element = element_bytes(index, whole);
  std::vector<std::byte> values(static_cast<size_t>(whole.numel() * element)), bytes;
  for (const StoredFragment& stored : index.fragments) {
    if (stored.fragment.tensor != whole.tensor) continue;
    for (const Block& block : blocks_of(index, stored)) {
      bytes.resize(static_cast<size_t>(bytes_of(index, block)));
      read(block, bytes.data());
      for_each_overlap(block.part, whole, [&](int64_t from, int64_t to, int64_t count) {
        std::memcpy(values.data() + to * element, bytes.data() + from * element, static_cast<size_t>(count * element));
      });
    }
  }
  return values;
}

}  // namespace checkpoint
