#include "parallel/mpi_channel.h"

#include "parallel/mpi_check.h"

namespace parallel {

MpiChannel::MpiChannel(const std::vector<int>& world_ranks, int64_t max_message_bytes,
                       std::shared_ptr<MpiProgress> progress)
    : max_message_bytes_(max_message_bytes), progress_(std::move(progress)) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  MPI_CHECK(MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group));
  MPI_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &comm_));
  MPI_CHECK(MPI_Group_free(&group));
  MPI_CHECK(MPI_Group_free(&world));
  MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
  MPI_CHECK(MPI_Comm_size(comm_, &size_));
  int* limit = nullptr;
  int is_set = 0;
  MPI_CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &is_set));
  if (is_set) max_tag_ = *limit;
}

MpiChannel::~MpiChannel() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (!is_finalized && comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

MpiMessages MpiChannel::next_collective() {
  const int tag = next_tag_;
  next_tag_ = tag == max_tag_ ? 1 : tag + 1;
  return {comm_, tag, max_message_bytes_};
}

}  // namespace parallel
