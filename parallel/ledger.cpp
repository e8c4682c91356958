#include "parallel/ledger.h"

#include <array>
#include <utility>
#include <vector>

#include "parallel/text_table.h"

namespace parallel {
namespace {

using Row = std::vector<std::string>;

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
  constexpr size_t kNumWords = 3;
  return format_table(rows_of(bill), kNumWords);
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
