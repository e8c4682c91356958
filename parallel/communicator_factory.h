#pragma once
/// Where communicators come from: MPI, or nobody (one rank). The mesh says which ranks belong together.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mesh.h"

namespace parallel {

class CommunicatorFactory {
 public:
  virtual ~CommunicatorFactory() = default;

  /// The group of these ranks of the world, in this order; this rank is one of them. Every member has to make its
  /// groups in the same order (they meet inside the call). Groups of the same ranks share one connection. A group of
  /// one is make_self_communicator(). Communicators may outlive the factory, not the MPI environment.
  virtual std::unique_ptr<Communicator> make(std::string axis, const std::vector<int>& ranks) = 0;
};

/// Makes groups of one only.
class SelfCommunicatorFactory final : public CommunicatorFactory {
 public:
  std::unique_ptr<Communicator> make(std::string axis, const std::vector<int>& ranks) override;
};

/// One communicator for every group of the mesh that this rank is in, named as the group, all made at start: a
/// connection first made in the middle of a pipeline can deadlock it.
class MeshCommunicators {
 public:
  MeshCommunicators(const Mesh& mesh, int rank, CommunicatorFactory& factory);

  Communicator& at(Group group) const { return *communicators_[static_cast<size_t>(group)]; }

 private:
  std::array<std::unique_ptr<Communicator>, kNumGroups> communicators_;
};

}  // namespace parallel
