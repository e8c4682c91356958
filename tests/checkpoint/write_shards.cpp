/// write_shards FOLDER: a checkpoint of three shards with a tensor of each dtype, and beside it the bytes of every
/// tensor, FOLDER/dump/GROUP/NAME. Programs that read HDF5 on their own are tested with it.

#include "tests/checkpoint/sharded_state.h"
#include "tests/support/temporary_folder.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  const tests::OneRank rank;
  tests::StateOfARun state;
  tests::fill_sharded(state);

  tests::save_in_shards(folder, 7, state, 3, rank.device());
  const std::vector<std::string> bytes = state.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string path = folder + "/dump/" + state.named()[i].name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    tests::write_file(path, bytes[i]);
  }
  return 0;
}
