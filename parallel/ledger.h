#pragma once
/// The bill: what this rank's communicators moved, in logical bytes. The plan predicts a `Bill`, the run counts one
/// with the same keys, and the two are equal to the byte. Wire bytes and time depend on the transport's algorithm and
/// are derived, never counted.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "tensor/dtype.h"

namespace parallel {

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all_v, broadcast, send, receive };
std::string to_string(Collective op);

/// What a line of the bill is about.
struct BillKey {
  std::string axis;  ///< name of the group: "tp", "grad"
  Collective op = Collective::all_reduce;
  tensor::Dtype dtype = tensor::Dtype::fp32;

  bool operator==(const BillKey&) const = default;
  bool operator<(const BillKey& other) const {
    return std::tie(axis, op, dtype) < std::tie(other.axis, other.op, other.dtype);
  }
};

struct BillLine {
  int64_t calls = 0;
  int64_t count = 0;  ///< elements
  int64_t bytes = 0;  ///< logical: gathered output, reduce_scatter's full input, all_to_all_v's send buffer (or
                      ///< what comes back: Counted), else x

  bool operator==(const BillLine&) const = default;
};

using Bill = std::map<BillKey, BillLine>;

/// Adds `calls` calls of `count` elements each.
void add_to_bill(Bill& bill, const BillKey& key, int64_t count, int64_t calls = 1);
void add_to_bill(Bill& bill, const Bill& other);
/// Without receives: their bytes are on the sender's bill.
int64_t total_bytes(const Bill& bill);
/// A table for people, one line per key and a total.
std::string format_bill(const Bill& bill);

class Ledger {
 public:
  void record(const BillKey& key, int64_t count) { add_to_bill(step_, key, count); }

  const Bill& step() const { return step_; }  ///< since the last end_step()
  Bill run() const;                           ///< everything so far, the current step included
  Bill end_step();                            ///< the step's bill; the next step starts empty

 private:
  Bill step_;
  Bill finished_steps_;
};

}  // namespace parallel
