#include "parallel/communicator_factory.h"

#include "tensor/error.h"

namespace parallel {

std::unique_ptr<Communicator> SelfCommunicatorFactory::make(std::string axis, const std::vector<int>& ranks) {
  CHECK(ranks.size() == 1, "group {} of {} ranks in a world of one", axis, ranks.size());
  return make_self_communicator(std::move(axis));
}

MeshCommunicators::MeshCommunicators(const Mesh& mesh, int rank, CommunicatorFactory& factory) {
  for (int i = 0; i < kNumGroups; ++i) {
    const auto group = static_cast<Group>(i);
    communicators_[static_cast<size_t>(i)] = factory.make(to_string(group), mesh.group(group, rank));
  }
}

}  // namespace parallel
