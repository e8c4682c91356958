#include "checkpoint/load_wants.h"

namespace checkpoint {

using tensor::Dtype;

namespace {

template <class From, class To>
void convert(const void* from, int64_t count, void* to) {
  const auto* x = static_cast<const From*>(from);
  auto* y = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i]);
}

/// Values of one floating dtype as another.
void copy_values(const void* from, Dtype from_dtype, int64_t count, void* to, Dtype to_dtype) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(count * tensor::size_of(to_dtype)));
  } else if (from_dtype == Dtype::fp32 && to_dtype == Dtype::fp64) {
    convert<float, double>(from, count, to);
  } else if (from_dtype == Dtype::fp64 && to_dtype == Dtype::fp32) {
    convert<double, float>(from, count, to);
  } else {
    CHECK(false, "{} is never loaded as {}", to_string(from_dtype), to_string(to_dtype));
  }
}

}  // namespace

void Target::fill(int64_t begin, const void* values, Dtype dtype, int64_t count) {
  copy_values(values, dtype, count, place(begin), values_.dtype());
  mark(count);
}

Wants::Wants(const Wire& wire, std::span<const Target> own) {
  Numbers numbers;
  for (const Target& target : own) {
    const Fragment& f = target.fragment();
    numbers.insert(numbers.end(), {f.tensor, f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                                   f.range.begin, f.range.end});
  }
  const std::vector<Numbers> all = wire.all_gather(numbers);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t i = 0; i + 7 <= all[rank].size(); i += 7) {
      const int64_t* row = all[rank].data() + i;
      of_tensor_[row[0]].push_back(
          {static_cast<int>(rank),
           i / 7,
           {.tensor = row[0], .box = {row[1], row[2], row[3], row[4]}, .range = {row[5], row[6]}}});
    }
  }
}

const std::vector<Wants::Want>& Wants::of(const Fragment& part) const {
  static const std::vector<Want> none;
  const auto found = of_tensor_.find(part.tensor);
  return found == of_tensor_.end() ? none : found->second;
}

}  // namespace checkpoint
