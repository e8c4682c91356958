// Files that HDF5 can open and that we never write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <functional>

#include "checkpoint/catalog.h"
#include "checkpoint/hdf5.h"
#include "tests/checkpoint/state_of_a_run.h"
#include "tests/support/temporary_folder.h"

namespace {

using checkpoint::DamagedError;
using checkpoint::hdf5::Handle;
using testing::HasSubstr;
using tests::message_of;
using tests::run_info;
using tests::StateOfARun;
using tests::TemporaryFolder;

class HostileFile : public testing::Test {
 protected:
  HostileFile() { state_.add("weights/w", {4}, tensor::Dtype::fp32); }

  /// Saves a good file, lets `change` do its work in it, and returns what loading says.
  std::string load_after(const std::function<void(hid_t)>& change) {
    checkpoint::save(path_, run_info(), state_.named());
    {
      const Handle access = checkpoint::hdf5::file_access();
      const Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, access.id()), H5Fclose);
      EXPECT_TRUE(file);
      change(file.id());
    }
    return message_of<DamagedError>([&] { checkpoint::load(path_, state_.named()); });
  }

  /// Puts a dataset "weights/w" of another making in the place of the good one.
  static void replace(hid_t file, hid_t type, const std::vector<hsize_t>& sizes, hid_t creation) {
    H5Ldelete(file, "weights/w", H5P_DEFAULT);
    const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose);
    const Handle dataset(H5Dcreate2(file, "weights/w", type, space.id(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
    EXPECT_TRUE(dataset);
    const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle hash(H5Acreate2(dataset.id(), "xxh3_64", H5T_STD_U64LE, scalar.id(), H5P_DEFAULT, H5P_DEFAULT),
                      H5Aclose);
    const uint64_t zero = 0;
    H5Awrite(hash.id(), H5T_STD_U64LE, &zero);
  }
  static Handle creation() { return Handle(H5Pcreate(H5P_DATASET_CREATE), H5Pclose); }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "state.h5";
  StateOfARun state_;
};

TEST_F(HostileFile, IsRefusedForASoftLink) {
  const std::string message = load_after([](hid_t file) {
    H5Lmove(file, "weights/w", file, "other", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/other", file, "weights/w", H5P_DEFAULT, H5P_DEFAULT);
  });

  EXPECT_THAT(message, HasSubstr("soft or external link"));
}

TEST_F(HostileFile, IsRefusedForAnExternalLink) {
  checkpoint::save(folder_ / "other.h5", run_info(), state_.named());

  const std::string message = load_after([](hid_t file) {
    H5Ldelete(file, "weights/w", H5P_DEFAULT);
    H5Lcreate_external("other.h5", "/weights/w", file, "weights/w", H5P_DEFAULT, H5P_DEFAULT);
  });

  EXPECT_THAT(message, HasSubstr("soft or external link"));
}

TEST_F(HostileFile, IsRefusedForExternalStorage) {
  const std::string secret = folder_ / "secret";
  tests::write_file(secret, "0123456789abcdef");

  const std::string message = load_after([&](hid_t file) {
    const Handle properties = creation();
    H5Pset_external(properties.id(), secret.c_str(), 0, 16);
    replace(file, H5T_IEEE_F32LE, {4}, properties.id());
  });

  EXPECT_THAT(message, HasSubstr("plain piece"));
}

TEST_F(HostileFile, IsRefusedForAVirtualDataset) {
  checkpoint::save(folder_ / "other.h5", run_info(), state_.named());

  const std::string message = load_after([&](hid_t file) {
    const Handle properties = creation();
    const hsize_t size = 4;
    const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
    H5Pset_virtual(properties.id(), space.id(), (folder_ / "other.h5").c_str(), "/weights/w", space.id());
    replace(file, H5T_IEEE_F32LE, {4}, properties.id());
  });

  EXPECT_THAT(message, HasSubstr("plain piece"));
}

TEST_F(HostileFile, IsRefusedForChunksAndFilters) {
  const std::string message = load_after([](hid_t file) {
    const Handle properties = creation();
    const hsize_t chunk = 2;
    H5Pset_chunk(properties.id(), 1, &chunk);
    H5Pset_shuffle(properties.id());
    replace(file, H5T_IEEE_F32LE, {4}, properties.id());
  });

  EXPECT_THAT(message, HasSubstr("plain piece"));
}

TEST_F(HostileFile, IsRefusedForSizesBeyondTheFile) {
  const std::string message = load_after([](hid_t file) {
    replace(file, H5T_IEEE_F32LE, {hsize_t{1} << 40}, creation().id());  // late allocation: no bytes behind it
  });

  EXPECT_THAT(message, HasSubstr("damaged"));
}

TEST_F(HostileFile, IsRefusedForSizesWhoseProductOverflows) {
  const std::string message = load_after([](hid_t file) {
    replace(file, H5T_IEEE_F32LE, {hsize_t{1} << 30, hsize_t{1} << 31, 1, 1}, creation().id());
  });

  EXPECT_THAT(message, HasSubstr("more bytes than any file"));
}

TEST_F(HostileFile, IsRefusedForTypesThatNoTensorHas) {
  const Handle text(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(text.id(), H5T_VARIABLE);
  for (const hid_t type : {H5T_IEEE_F32BE, H5T_STD_U16LE, H5T_STD_REF_OBJ, text.id()}) {
    EXPECT_THAT(load_after([&](hid_t file) { replace(file, type, {4}, creation().id()); }), HasSubstr("type"));
  }
}

TEST_F(HostileFile, IsRefusedForTooManyDims) {
  const std::string message = load_after([](hid_t file) {
    replace(file, H5T_IEEE_F32LE, {1, 1, 1, 1, 4}, creation().id());
  });

  EXPECT_THAT(message, HasSubstr("5 dims"));
}

TEST_F(HostileFile, IsRefusedForGroupsInACircle) {
  const std::string message =
      load_after([](hid_t file) { H5Lcreate_hard(file, "/", file, "weights/again", H5P_DEFAULT, H5P_DEFAULT); });

  EXPECT_THAT(message, HasSubstr("damaged"));
}

TEST_F(HostileFile, IsRefusedForANamedType) {
  const std::string message = load_after([](hid_t file) {
    const Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    H5Tcommit2(file, "type", type.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  });

  EXPECT_THAT(message, HasSubstr("neither group nor dataset"));
}

TEST_F(HostileFile, IsRefusedForAChangedStep) {
  const std::string message = load_after([](hid_t file) {
    const Handle step(H5Aopen(file, "step", H5P_DEFAULT), H5Aclose);
    const int64_t value = 7;
    EXPECT_GE(H5Awrite(step.id(), H5T_STD_I64LE, &value), 0);
  });

  EXPECT_THAT(message, HasSubstr("hash"));
}

TEST_F(HostileFile, IsNotCalledDamagedForAVersionFromTheFuture) {
  const std::string message = message_of<tensor::CheckpointError>([&] {
    load_after([](hid_t file) {
      const Handle version(H5Aopen(file, "format_version", H5P_DEFAULT), H5Aclose);
      const uint64_t value = 99;
      EXPECT_GE(H5Awrite(version.id(), H5T_STD_U64LE, &value), 0);
    });
  });

  EXPECT_THAT(message, HasSubstr("format version 99")) << "an older checkpoint must not replace it";
}

}  // namespace
