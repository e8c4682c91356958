#include "parallel/mpi_communicator_factory.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "parallel/mpi_channel.h"
#include "parallel/mpi_communicator.h"
#include "tensor/error.h"

namespace parallel {

struct MpiCommunicatorFactory::State {
  Ledger& ledger;
  MpiOptions options;
  int world_rank = -1;
  std::shared_ptr<MpiProgress> progress = std::make_shared<MpiProgress>();
  std::map<std::vector<int>, std::shared_ptr<MpiChannel>> channels = {};  ///< by ranks of this world
};

MpiCommunicatorFactory::MpiCommunicatorFactory(const MpiEnvironment& environment, Ledger& ledger, MpiOptions options)
    : state_(std::make_unique<State>(State{ledger, std::move(options)})) {
  std::vector<int>& ranks = state_->options.world_ranks;
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(environment.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  const auto self = std::find(ranks.begin(), ranks.end(), environment.world_rank());
  CHECK(self != ranks.end(), "rank {} is part of the world that it makes groups in", environment.world_rank());
  state_->world_rank = static_cast<int>(self - ranks.begin());
}

MpiCommunicatorFactory::~MpiCommunicatorFactory() = default;

int MpiCommunicatorFactory::world_rank() const { return state_->world_rank; }
int MpiCommunicatorFactory::world_size() const { return static_cast<int>(state_->options.world_ranks.size()); }

std::unique_ptr<Communicator> MpiCommunicatorFactory::make(std::string axis, const std::vector<int>& ranks) {
  CHECK(std::find(ranks.begin(), ranks.end(), world_rank()) != ranks.end(), "rank {} is in its {} group", world_rank(),
        axis);
  if (ranks.size() == 1) return make_self_communicator(std::move(axis));
  std::shared_ptr<MpiChannel>& channel = state_->channels[ranks];
  if (!channel) {
    std::vector<int> world_ranks;
    for (const int rank : ranks) world_ranks.push_back(state_->options.world_ranks.at(static_cast<size_t>(rank)));
    channel = std::make_shared<MpiChannel>(world_ranks, state_->options.max_message_bytes, state_->progress);
  }
  return make_mpi_communicator(std::move(axis), channel, state_->ledger, state_->options.small_all_reduce_bytes);
}

}  // namespace parallel
