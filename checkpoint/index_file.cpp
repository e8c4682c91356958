#include "checkpoint/index_file.h"

#include <map>

#include "checkpoint/foreign_file.h"
#include "checkpoint/format.h"
#include "checkpoint/layout.h"
#include "checkpoint/shard.h"
#include "checkpoint/tables.h"

namespace checkpoint {

namespace {

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

}  // namespace

void write_index(const std::string& path, const Index& index) {
  TemporaryFile file(path);
  Layout layout(file);
  layout.describe_run(index.info, format::kIndexFormatName, 0);
  const TableWriter tables(layout, index);
  add_virtual_tensors(layout, index);
  layout.close();
  tables.write(file, index);
  file.publish();
}

Index read_index(const InputFile& input) {
  const ForeignFile file(input);
  Index index = read_tables(file, file.read_run(format::kIndexFormatName).info);
  check_index(index, input.path());
  return index;
}

Index read_shard(const InputFile& input, const std::string& path) {
  const ForeignFile file(input);
  Index index = read_tables(file, file.read_run(format::kShardFormatName).info);
  if (!index.files.empty()) file.damaged("it tells of other files");
  index.files.push_back({path, input.bytes()});
  check_places(index, input.path());
  return index;
}

}  // namespace checkpoint
