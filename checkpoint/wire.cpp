#include "checkpoint/wire.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace checkpoint {

using parallel::Reduction;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

/// A text as numbers: its length, then eight bytes each.
Numbers encode(const std::string& text) {
  Numbers numbers(1 + (text.size() + sizeof(int64_t) - 1) / sizeof(int64_t), 0);
  numbers[0] = std::ssize(text);
  if (!text.empty()) std::memcpy(numbers.data() + 1, text.data(), text.size());
  return numbers;
}

std::string decode(const Numbers& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data() + 1), static_cast<size_t>(numbers[0]));
}

}  // namespace

Tensor Wire::upload(const Numbers& numbers) const {
  Tensor x = device_.allocate({std::ssize(numbers)}, Dtype::int64, MemoryCategory::other);
  device_.copy_from_host(numbers.data(), x);
  return x;
}

Numbers Wire::download(const Tensor& x) const {
  Numbers numbers(static_cast<size_t>(x.numel()));
  device_.copy_to_host(x, numbers.data());
  return numbers;
}

Numbers Wire::from_root(const Numbers& numbers) const {
  Tensor count = upload({std::ssize(numbers)});
  group_.broadcast(count, 0).wait();
  Numbers sized = numbers;
  sized.resize(static_cast<size_t>(download(count)[0]));
  Tensor x = upload(sized);
  group_.broadcast(x, 0).wait();
  return download(x);
}

std::string Wire::from_root(const std::string& text) const { return decode(from_root(encode(text))); }

std::vector<Numbers> Wire::gather(const Numbers& own) const {
  if (!is_root()) {
    group_.send(upload({std::ssize(own)}), 0).wait();
    group_.send(upload(own), 0).wait();
    return {};
  }
  std::vector<Numbers> all = {own};
  for (int rank = 1; rank < size(); ++rank) {
    Tensor count = upload({0});
    group_.receive(count, rank).wait();
    Tensor x = upload(Numbers(static_cast<size_t>(download(count)[0])));
    group_.receive(x, rank).wait();
    all.push_back(download(x));
  }
  return all;
}

std::vector<std::string> Wire::gather(const std::string& own) const {
  std::vector<std::string> texts;
  for (const Numbers& numbers : gather(encode(own))) texts.push_back(decode(numbers));
  return texts;
}

std::vector<Numbers> Wire::all_gather(const Numbers& own) const {
  Tensor counts = upload(Numbers(static_cast<size_t>(size())));
  group_.all_gather(upload({std::ssize(own)}), counts).wait();
  const Numbers sizes = download(counts);
  Tensor whole = upload(Numbers(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}))));
  group_.all_gather_v(upload(own), whole, sizes).wait();
  const Numbers joined = download(whole);
  std::vector<Numbers> all;
  auto begin = joined.begin();
  for (const int64_t count : sizes) {
    all.emplace_back(begin, begin + count);
    begin += count;
  }
  return all;
}

void Wire::on_root(const std::function<void()>& action) const {
  std::string failure;
  if (is_root()) {
    try {
      action();
    } catch (const tensor::StorageError& error) {
      failure = error.what();
    }
  }
  failure = from_root(failure);
  if (!failure.empty()) throw tensor::StorageError(failure);
}

int64_t Wire::sum(int64_t own) const {
  Tensor x = upload({own});
  group_.all_reduce(x, Reduction::sum).wait();
  return download(x)[0];
}

}  // namespace checkpoint
