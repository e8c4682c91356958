#include "checkpoint/hdf5.h"

#include <array>
#include <string_view>

namespace checkpoint::hdf5 {
namespace {

using tensor::Dtype;

constexpr std::array kDtypes = {Dtype::fp32, Dtype::bf16, Dtype::fp64, Dtype::int32, Dtype::int64};
constexpr size_t kMaxErrorText = 200;

Handle bfloat16_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  // sign bit 15, exponent of 8 bits from bit 7, fraction of 7 bits from bit 0; fields first, then the size they fit in
  const bool is_ok = H5Tset_fields(type.id(), 15, 7, 8, 0, 7) >= 0 && H5Tset_ebias(type.id(), 127) >= 0 &&
                     H5Tset_precision(type.id(), 16) >= 0 && H5Tset_size(type.id(), 2) >= 0;
  return is_ok ? std::move(type) : Handle();
}

/// Called from the innermost error outwards; stops after the first.
herr_t keep_first(unsigned, const H5E_error2_t* error, void* text) {
  static_cast<std::string*>(text)->assign(error->desc != nullptr ? error->desc : "");
  return 1;
}

}  // namespace

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    (void)close();
    id_ = std::exchange(other.id_, H5I_INVALID_HID);
    close_ = other.close_;
  }
  return *this;
}

Handle::~Handle() {
  if (id_ < 0) return;
  const hid_t errors = H5Eget_current_stack();  // every call clears it
  (void)close();
  (void)H5Eset_current_stack(errors);
}

bool Handle::close() {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  return id < 0 || close_(id) >= 0;
}

void prepare_library() {
  (void)H5dont_atexit();  // refuses once the library is open: then it was called before
  (void)H5open();
  (void)H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  (void)H5PLset_loading_state(0);
}

Handle file_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const bool is_ok = H5Pset_fapl_sec2(access.id()) >= 0 && H5Pset_file_locking(access.id(), 0, 1) >= 0 &&
                     H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
                     H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG) >= 0;
  return is_ok ? std::move(access) : Handle();
}

Handle file_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return Handle(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    case Dtype::bf16:
      return bfloat16_type();
    case Dtype::fp64:
      return Handle(H5Tcopy(H5T_IEEE_F64LE), H5Tclose);
    case Dtype::int32:
      return Handle(H5Tcopy(H5T_STD_I32LE), H5Tclose);
    case Dtype::int64:
      return Handle(H5Tcopy(H5T_STD_I64LE), H5Tclose);
  }
  return Handle();
}

bool find_dtype(hid_t type, Dtype& dtype) {
  for (const Dtype candidate : kDtypes) {
    if (H5Tequal(type, file_type(candidate).id()) > 0) {
      dtype = candidate;
      return true;
    }
  }
  return false;
}

Handle text_type(size_t size) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  const bool is_ok = H5Tset_size(type.id(), size) >= 0 && H5Tset_strpad(type.id(), H5T_STR_NULLPAD) >= 0 &&
                     H5Tset_cset(type.id(), H5T_CSET_UTF8) >= 0;
  return is_ok ? std::move(type) : Handle();
}

/// Of a system call that failed HDF5 tells time, path and buffer; errno's text alone is what a reader wants.
std::string without_details(const std::string& text) {
  constexpr std::string_view kLabel = "error message = '";
  const size_t label = text.find(kLabel);
  if (label == std::string::npos) return text;
  const size_t begin = label + kLabel.size();
  return text.substr(begin, text.find('\'', begin) - begin);
}

std::string last_error() {
  std::string text;
  (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  text = without_details(text);
  if (text.size() > kMaxErrorText) text.resize(kMaxErrorText);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.empty() ? "no reason given" : text;
}

}  // namespace checkpoint::hdf5
