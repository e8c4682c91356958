#include "checkpoint/index_file.h"

#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/foreign_file.h"
#include "checkpoint/format.h"
#include "checkpoint/layout.h"
#include "checkpoint/shard.h"

namespace checkpoint {

using hdf5::Handle;
using parallel::Range;
using tensor::Dtype;
using Json = nlohmann::json;

namespace {

constexpr int64_t kFragmentColumns = 10;
constexpr Dtype kDtypes[] = {Dtype::fp32, Dtype::bf16, Dtype::fp64, Dtype::int32, Dtype::int64};

// ---- writing

/// A fragment as rectangles: part of a row, whole rows, part of a row.
std::vector<Layout::Source> sources_of(const Index& index, const StoredFragment& stored) {
  const Fragment& f = stored.fragment;
  const TensorInfo& info = index.tensors[static_cast<size_t>(f.tensor)];
  const int64_t columns = f.box.num_columns;
  std::vector<Layout::Source> sources;
  for (int64_t begin = f.range.begin; begin < f.range.end;) {
    const int64_t column = begin % columns;
    const bool has_whole_rows = column == 0 && f.range.end - begin >= columns;
    const int64_t rows = has_whole_rows ? (f.range.end - begin) / columns : 1;
    const int64_t width = has_whole_rows ? columns : std::min(columns - column, f.range.end - begin);
    sources.push_back({.path = index.files[static_cast<size_t>(stored.file)].path,
                       .dataset = "/" + dataset_name(info, f),
                       .dataset_count = f.numel(),
                       .begin = begin - f.range.begin,
                       .box = {f.box.first_row + begin / columns, rows, f.box.first_column + column, width}});
    begin += rows * width;
  }
  return sources;
}

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

void add_virtual_tensors(const Layout& layout, const Index& index) {
  std::map<int64_t, std::vector<Layout::Source>> by_tensor;
  for (const StoredFragment& stored : index.fragments) {
    std::vector<Layout::Source>& sources = by_tensor[stored.fragment.tensor];
    for (Layout::Source& source : sources_of(index, stored)) sources.push_back(std::move(source));
  }
  for (size_t i = 0; i < index.tensors.size(); ++i) {
    layout.add_virtual_tensor(index.tensors[i], by_tensor[static_cast<int64_t>(i)]);
  }
}

// ---- reading

class IndexReader {
 public:
  explicit IndexReader(const InputFile& input) : input_(input), file_(input) {}

  Index read() {
    Index index;
    index.info = file_.read_run(format::kIndexFormatName).info;
    index.info.config_text = text(format::kConfigText, format::kMaxTextBytes);
    read_tensors(index);
    read_files(index);
    for (const int64_t hash : numbers(format::kBlockTable, 1)) {
      index.block_hashes.push_back(static_cast<uint64_t>(hash));
    }
    read_fragments(index);
    check_index(index, input_.path());
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

  Json json(const char* name) const {
    Json list = Json::parse(text(name, format::kMaxTableBytes), nullptr, /*allow_exceptions=*/false);
    if (!list.is_array()) file_.damaged(fmt::format("\"{}\" is no JSON list", name));
    return list;
  }

  void read_tensors(Index& index) const {
    for (const Json& row : json(format::kTensorTable)) {
      const bool is_row = row.is_array() && row.size() == 3 && row[0].is_string() && row[1].is_string() &&
                          row[2].is_array() && !row[2].empty() && row[2].size() <= 2;
      if (!is_row) file_.damaged("its list of tensors has another form");
      TensorInfo info{.name = row[0], .dtype = dtype_named(row[1]), .shape = {}};
      for (const Json& size : row[2]) {
        if (!size.is_number_integer() || size < 0 || size > (int64_t{1} << 40)) file_.damaged("a size is impossible");
      }
      info.shape = row[2].size() == 1 ? tensor::Shape{row[2][0].get<int64_t>()}
                                      : tensor::Shape{row[2][0].get<int64_t>(), row[2][1].get<int64_t>()};
      if (info.name.size() > format::kMaxNameBytes) file_.damaged("a name is too long");
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

  void read_files(Index& index) const {
    for (const Json& row : json(format::kFileTable)) {
      const bool is_row = row.is_array() && row.size() == 2 && row[0].is_string() && row[1].is_number_integer();
      if (!is_row || row[1] < 0) file_.damaged("its list of files has another form");
      index.files.push_back({row[0], row[1]});
      const std::string& path = index.files.back().path;
      const bool stays_inside = !path.empty() && path.front() != '/' && path.find("..") == std::string::npos;
      if (!stays_inside) file_.damaged("a file lies outside of the checkpoint");
    }
  }

  void read_fragments(Index& index) const {
    const std::vector<int64_t> table = numbers(format::kFragmentTable, kFragmentColumns);
    for (size_t i = 0; i < table.size(); i += kFragmentColumns) {
      const int64_t* row = table.data() + i;
      index.fragments.push_back(
          {.fragment = {.tensor = row[0], .box = {row[1], row[2], row[3], row[4]}, .range = {row[5], row[6]}},
           .file = row[7],
           .offset = row[8],
           .first_block = row[9]});
    }
  }

  const InputFile& input_;
  ForeignFile file_;
};

}  // namespace

void write_index(const std::string& path, const Index& index) {
  const std::string tensors = tensors_json(index), files = files_json(index);
  const std::vector<int64_t> fragments = fragment_table(index);
  TemporaryFile file(path);
  Layout layout(file);
  layout.describe_run(index.info, format::kIndexFormatName, 0);
  const int64_t config_offset = layout.add_text(format::kConfigText, index.info.config_text);
  const int64_t tensors_offset = layout.add_text(format::kTensorTable, tensors);
  const int64_t files_offset = layout.add_text(format::kFileTable, files);
  const int64_t fragments_offset =
      layout.add_table(format::kFragmentTable, std::ssize(index.fragments), kFragmentColumns);
  const int64_t blocks_offset = layout.add_table(format::kBlockTable, std::ssize(index.block_hashes), 1);
  add_virtual_tensors(layout, index);
  layout.close();

  const auto write_text = [&](int64_t offset, const std::string& text) {
    file.write_at(offset, text.c_str(), std::max<int64_t>(std::ssize(text), 1));
  };
  write_text(config_offset, index.info.config_text);
  write_text(tensors_offset, tensors);
  write_text(files_offset, files);
  file.write_at(fragments_offset, fragments.data(), std::ssize(fragments) * static_cast<int64_t>(sizeof(int64_t)));
  file.write_at(blocks_offset, index.block_hashes.data(),
                std::ssize(index.block_hashes) * static_cast<int64_t>(sizeof(uint64_t)));
  file.publish();
}

Index read_index(const InputFile& file) { return IndexReader(file).read(); }

}  // namespace checkpoint
