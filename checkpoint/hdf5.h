#pragma once
/// HDF5 with owned handles, quiet errors, and only the parts of the format that our checkpoints use.

#include <hdf5.h>

#include <string>
#include <utility>

#include "tensor/dtype.h"

namespace checkpoint::hdf5 {

/// Owns one HDF5 id. Closing in the destructor ignores errors; close() reports them.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Handle() = default;
  Handle(hid_t id, Close how_to_close) : id_(id), close_(how_to_close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();  ///< what HDF5 said of an error before is still there after it

  hid_t id() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  bool close();  ///< false where HDF5 says no; the handle is gone either way

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// Once before anything else, cheap to repeat: no error stack on the terminal, no plug-ins loaded from a path somebody
/// else chose, no work left to process exit.
void prepare_library();

/// Plain POSIX files in the current format, HDF5's own file locks off: a checkpoint is published complete by rename and
/// never modified, while locks fail on network file systems.
Handle file_access();

/// The type on disk; also the type in memory, so that HDF5 never converts.
Handle file_type(tensor::Dtype dtype);
/// The dtype whose file_type() equals `type`; false where there is none.
bool find_dtype(hid_t type, tensor::Dtype& dtype);
Handle text_type(size_t size);  ///< fixed-length, NUL-padded UTF-8

/// What HDF5 said last on this thread, innermost reason first; control bytes replaced.
std::string last_error();

}  // namespace checkpoint::hdf5
