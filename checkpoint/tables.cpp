#include "checkpoint/tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/content_hash.h"
#include "checkpoint/format.h"

namespace checkpoint {

using hdf5::Handle;
using tensor::Dtype;
using Json = nlohmann::json;

namespace {

constexpr int64_t kFragmentColumns = 10;
constexpr Dtype kDtypes[] = {Dtype::fp32, Dtype::bf16, Dtype::fp64, Dtype::int32, Dtype::int64};

struct Texts {
  std::string tensors, files;
};

std::string tensors_json(const Index& index) {
  Json list = Json::array();
  for (const TensorInfo& info : index.tensors) {
    Json sizes = Json::array();
    for (int dim = 0; dim < info.shape.num_dims(); ++dim) sizes.push_back(info.shape[dim]);
    list.push_back({info.name, to_string(info.dtype), sizes});
  }
  return list.dump();
}

std::string files_json(const Index& index) {
  Json list = Json::array();
  for (const ShardFile& file : index.files) list.push_back({file.path, file.bytes});
  return list.dump();
}

std::vector<int64_t> fragment_table(const Index& index) {
  std::vector<int64_t> table;
  for (const StoredFragment& stored : index.fragments) {
    const Fragment& f = stored.fragment;
    table.insert(table.end(), {f.tensor, f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                               f.range.begin, f.range.end, stored.file, stored.offset, stored.first_block});
  }
  return table;
}

uint64_t hash_tables(const Index& index, const Texts& texts, const std::vector<int64_t>& fragments) {
  const auto hash_text = [](const std::string& text) { return hash_bytes(text.data(), std::ssize(text)); };
  const auto hash_numbers = [](const auto& numbers) {
    return hash_bytes(numbers.data(), std::ssize(numbers) * static_cast<int64_t>(sizeof numbers[0]));
  };
  return hash_numbers(std::vector<uint64_t>{hash_contents(index.info, {}), hash_text(texts.tensors),
                                            hash_text(texts.files), hash_numbers(fragments),
                                            hash_numbers(index.block_hashes)});
}

class TableReader {
 public:
  explicit TableReader(const ForeignFile& file) : file_(file), input_(file.input()) {}

  Index read(const RunInfo& run) const {
    Index index{.info = run, .tensors = {}, .files = {}, .fragments = {}, .block_hashes = {}};
    index.info.config_text = text(format::kConfigText, format::kMaxTextBytes);
    Texts texts{text(format::kTensorTable, format::kMaxTableBytes), text(format::kFileTable, format::kMaxTableBytes)};
    read_tensors(index, texts.tensors);
    read_files(index, texts.files);
    const std::vector<int64_t> blocks = numbers(format::kBlockTable, 1);
    index.block_hashes.assign(blocks.begin(), blocks.end());
    const std::vector<int64_t> fragments = numbers(format::kFragmentTable, kFragmentColumns);
    read_fragments(index, fragments);
    const std::vector<int64_t> own = numbers(format::kOwnHash, 1);
    const uint64_t found = hash_tables(index, texts, fragments);
    if (own.size() != 1 || static_cast<uint64_t>(own[0]) != found) file_.damaged("its tables were changed");
    return index;
  }

 private:
  Handle open(const char* name) const {
    // Each part of the path is a hard link: nothing leads out of the file.
    const std::string path = name;
    for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
      require_hard_link(path.substr(0, end));
    }
    require_hard_link(path);
    Handle dataset(H5Dopen2(file_.root(), name, H5P_DEFAULT), H5Dclose);
    file_.require(static_cast<bool>(dataset), name);
    file_.require_plain_storage(dataset.id(), name);
    return dataset;
  }
  void require_hard_link(const std::string& path) const {
    H5L_info_t link{};
    const bool is_there = H5Lget_info(file_.root(), path.c_str(), &link, H5P_DEFAULT) >= 0;
    if (!is_there || link.type != H5L_TYPE_HARD) file_.damaged(fmt::format("it lacks \"{}\"", path));
  }

  std::string text(const char* name, size_t max_bytes) const {
    return file_.read_text_dataset(open(name).id(), name, max_bytes);
  }

  std::vector<int64_t> numbers(const char* name, int64_t columns) const {
    const Handle dataset = open(name);
    const Handle type(H5Dget_type(dataset.id()), H5Tclose);
    const Handle space(H5Dget_space(dataset.id()), H5Sclose);
    Dtype dtype = Dtype::fp32;
    hsize_t sizes[2] = {0, 0};
    const bool is_table =
        hdf5::find_dtype(type.id(), dtype) && dtype == Dtype::int64 && H5Sget_simple_extent_ndims(space.id()) == 2 &&
        H5Sget_simple_extent_dims(space.id(), sizes, nullptr) == 2 && sizes[1] == static_cast<hsize_t>(columns) &&
        sizes[0] <= format::kMaxTableBytes / sizeof(int64_t) / static_cast<size_t>(columns);
    if (!is_table) file_.damaged(fmt::format("\"{}\" is no table of {} columns", name, columns));
    std::vector<int64_t> values(static_cast<size_t>(sizes[0]) * static_cast<size_t>(columns));
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(int64_t));
    if (bytes > 0) input_.read_at(file_.checked_offset(dataset.id(), name, bytes), values.data(), bytes);
    return values;
  }

  Json json(const char* name, const std::string& text) const {
    Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!list.is_array()) file_.damaged(fmt::format("\"{}\" is no JSON list", name));
    return list;
  }

  void read_tensors(Index& index, const std::string& text) const {
    for (const Json& row : json(format::kTensorTable, text)) {
      const bool is_row = row.is_array() && row.size() == 3 && row[0].is_string() && row[1].is_string() &&
                          row[2].is_array() && !row[2].empty() && row[2].size() <= 2;
      if (!is_row) file_.damaged("its list of tensors has another form");
      TensorInfo info{.name = row[0], .dtype = dtype_named(row[1]), .shape = {}};
      int64_t most = format::kMaxElements;
      for (const Json& size : row[2]) {
        if (!size.is_number_integer() || size < 0 || size > most) file_.damaged("a size is impossible");
        most /= std::max(size.get<int64_t>(), int64_t{1});
      }
      info.shape = row[2].size() == 1 ? tensor::Shape{row[2][0].get<int64_t>()}
                                      : tensor::Shape{row[2][0].get<int64_t>(), row[2][1].get<int64_t>()};
      if (!is_valid_name(info.name)) file_.damaged("a tensor has a name that none has");
      if (!index.tensors.empty() && index.tensors.back().name >= info.name) file_.damaged("its names are in no order");
      index.tensors.push_back(std::move(info));
    }
  }
  Dtype dtype_named(const std::string& name) const {
    for (const Dtype dtype : kDtypes) {
      if (to_string(dtype) == name) return dtype;
    }
    file_.damaged("a tensor has a type that none has");
  }

  void read_files(Index& index, const std::string& text) const {
    for (const Json& row : json(format::kFileTable, text)) {
      const bool is_row = row.is_array() && row.size() == 2 && row[0].is_string() && row[1].is_number_integer();
      if (!is_row || row[1] < 0 || row[1] > format::kMaxFileBytes) file_.damaged("its list of files has another form");
      index.files.push_back({row[0], row[1]});
      const std::string& path = index.files.back().path;
      if (!stays_inside(path)) file_.damaged("a file lies outside of the checkpoint");
    }
  }

  void read_fragments(Index& index, const std::vector<int64_t>& table) const {
    for (size_t i = 0; i < table.size(); i += kFragmentColumns) {
      const int64_t* row = table.data() + i;
      index.fragments.push_back(
          {.fragment = {.tensor = row[0], .box = {row[1], row[2], row[3], row[4]}, .range = {row[5], row[6]}},
           .file = row[7],
           .offset = row[8],
           .first_block = row[9]});
    }
  }

  const ForeignFile& file_;
  const InputFile& input_;
};

}  // namespace

TableWriter::TableWriter(const Layout& layout, const Index& index)
    : config_(layout.add_text(format::kConfigText, index.info.config_text)),
      tensors_(layout.add_text(format::kTensorTable, tensors_json(index))),
      files_(layout.add_text(format::kFileTable, files_json(index))),
      fragments_(layout.add_table(format::kFragmentTable, std::ssize(index.fragments), kFragmentColumns)),
      blocks_(layout.add_table(format::kBlockTable, std::ssize(index.block_hashes), 1)),
      own_hash_(layout.add_table(format::kOwnHash, 1, 1)) {
  CHECK(index.info.config_text.size() <= format::kMaxTextBytes, "the config of {} bytes fits",
        index.info.config_text.size());
}

void TableWriter::write(const TemporaryFile& file, const Index& index) const {
  const auto write_text = [&](int64_t offset, const std::string& text) {  // an empty one has one byte, NUL
    file.write_at(offset, text.c_str(), std::max<int64_t>(std::ssize(text), 1));
  };
  const Texts texts{tensors_json(index), files_json(index)};
  const std::vector<int64_t> fragments = fragment_table(index);
  const uint64_t own_hash = hash_tables(index, texts, fragments);
  write_text(config_, index.info.config_text);
  write_text(tensors_, texts.tensors);
  write_text(files_, texts.files);
  file.write_at(fragments_, fragments.data(), std::ssize(fragments) * static_cast<int64_t>(sizeof(int64_t)));
  file.write_at(blocks_, index.block_hashes.data(),
                std::ssize(index.block_hashes) * static_cast<int64_t>(sizeof(uint64_t)));
  file.write_at(own_hash_, &own_hash, sizeof own_hash);
}

Index read_tables(const ForeignFile& file, const RunInfo& run) { return TableReader(file).read(run); }

}  // namespace checkpoint
