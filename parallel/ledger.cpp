#include "parallel/ledger.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace parallel {
namespace {

/// 1234567 -> "1,234,567"
std::string with_commas(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

using Row = std::array<std::string, 6>;

std::vector<Row> rows_of(const Bill& bill) {
  std::vector<Row> rows = {{"group", "operation", "dtype", "calls", "elements", "bytes"}};
  BillLine total;
  for (const auto& [key, line] : bill) {
    rows.push_back({key.axis, to_string(key.op), tensor::to_string(key.dtype), with_commas(line.calls),
                    with_commas(line.count), with_commas(line.bytes)});
    total.calls += line.calls;
  }
  rows.push_back({"total", "", "", with_commas(total.calls), "", with_commas(total_bytes(bill))});
  return rows;
}

}  // namespace

std::string to_string(Collective op) {
  static constexpr std::array<const char*, 7> kNames = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all_v",
                                                        "broadcast",  "send",       "receive"};
  return kNames.at(static_cast<size_t>(op));
}

void add_to_bill(Bill& bill, const BillKey& key, int64_t count, int64_t calls) {
  BillLine& line = bill[key];
  line.calls += calls;
  line.count += calls * count;
  line.bytes += calls * count * tensor::size_of(key.dtype);
}

void add_to_bill(Bill& bill, const Bill& other) {
  for (const auto& [key, line] : other) {
    BillLine& sum = bill[key];
    sum.calls += line.calls;
    sum.count += line.count;
    sum.bytes += line.bytes;
  }
}

int64_t total_bytes(const Bill& bill) {
  int64_t bytes = 0;
  for (const auto& [key, line] : bill) {
    if (key.op != Collective::receive) bytes += line.bytes;
  }
  return bytes;
}

std::string format_bill(const Bill& bill) {
  const std::vector<Row> rows = rows_of(bill);
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string table;
  for (const Row& row : rows) {
    table += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}  {:>{}}\n", row[0], widths[0], row[1], widths[1],
                         row[2], widths[2], row[3], widths[3], row[4], widths[4], row[5], widths[5]);
  }
  return table;
}

Bill Ledger::run() const {
  Bill all = finished_steps_;
  add_to_bill(all, step_);
  return all;
}

Bill Ledger::end_step() {
  add_to_bill(finished_steps_, step_);
  return std::exchange(step_, {});
}

}  // namespace parallel
