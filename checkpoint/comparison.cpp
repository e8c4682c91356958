#include "checkpoint/comparison.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "checkpoint/block_reader.h"
#include "tensor/dtype.h"

namespace checkpoint {
namespace {

using tensor::Dtype;

template <class T>
double value_at(const std::byte* bytes, int64_t index) {
  T value{};
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  if constexpr (std::is_same_v<T, tensor::bfloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

double value_at(const std::byte* bytes, Dtype dtype, int64_t index) {
  switch (dtype) {
    case Dtype::fp32:
      return value_at<float>(bytes, index);
    case Dtype::bf16:
      return value_at<tensor::bfloat16>(bytes, index);
    case Dtype::fp64:
      return value_at<double>(bytes, index);
    case Dtype::int32:
      return value_at<int32_t>(bytes, index);
    case Dtype::int64:
      return value_at<int64_t>(bytes, index);
  }
  return 0;
}

/// Bits of one dtype, values of two.
void count_differences(const std::vector<std::byte>& a, const std::vector<std::byte>& b, TensorDifference& found) {
  const Dtype dtype_a = found.a->dtype, dtype_b = found.b->dtype;
  const int64_t size = tensor::size_of(dtype_a);
  for (int64_t i = 0; i < found.a->shape.numel(); ++i) {
    if (dtype_a == dtype_b && std::memcmp(&a[static_cast<size_t>(i * size)], &b[static_cast<size_t>(i * size)],
                                          static_cast<size_t>(size)) == 0) {
      continue;
    }
    const double x = value_at(a.data(), dtype_a, i), y = value_at(b.data(), dtype_b, i);
    if (dtype_a != dtype_b && x == y) continue;
    ++found.num_different;
    const double distance = x == y ? 0 : std::abs(x - y);  // infinities of one sign are no distance apart
    found.largest = std::max(found.largest, std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance);
  }
}

std::map<std::string, size_t> places_of(const Index& index) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < index.tensors.size(); ++i) places[index.tensors[i].name] = i;
  return places;
}

class Compare {
 public:
  Compare(const std::string& a, const std::string& b)
      : a_(open_checkpoint(a)), b_(open_checkpoint(b)), read_a_(a_), read_b_(b_) {}

  Comparison run() {
    const std::map<std::string, size_t> in_a = places_of(a_.index), in_b = places_of(b_.index);
    std::map<std::string, TensorDifference> all;
    for (const auto& [name, place] : in_a) all[name].a = a_.index.tensors[place];
    for (const auto& [name, place] : in_b) all[name].b = b_.index.tensors[place];
    Comparison result{.a = a_.index.info, .b = b_.index.info, .differences = {}};
    for (auto& [name, difference] : all) {
      difference.name = name;
      if (difference.a && difference.b && is_same(in_a.at(name), in_b.at(name), difference)) {
        ++result.num_equal;
      } else {
        result.differences.push_back(std::move(difference));
      }
    }
    return result;
  }

 private:
  bool is_same(size_t place_a, size_t place_b, TensorDifference& difference) {
    if (difference.a->shape != difference.b->shape) return false;
    const std::vector<std::byte> a = read_a_.read_tensor(place_a), b = read_b_.read_tensor(place_b);
    if (difference.a->dtype == difference.b->dtype && a == b) return true;
    count_differences(a, b, difference);
    return false;
  }

  OpenCheckpoint a_, b_;
  BlockReader read_a_, read_b_;
};

}  // namespace

Comparison compare(const std::string& a, const std::string& b) { return Compare(a, b).run(); }

}  // namespace checkpoint
