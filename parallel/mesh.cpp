#include "parallel/mesh.h"

#include <algorithm>

#include "parallel/layout.h"
#include "tensor/error.h"

namespace parallel {
namespace {

constexpr std::array<Axis, 5> kDenseView = {Axis::tp, Axis::sp, Axis::dp_in, Axis::pp, Axis::dp_out};
constexpr std::array<Axis, 5> kExpertView = {Axis::expert_tp, Axis::ep, Axis::expert_dp_in, Axis::pp, Axis::dp_out};

template <class Container>
bool contains(const Container& container, Axis axis) {
  return std::find(container.begin(), container.end(), axis) != container.end();
}

/// The view all of `axes` belong to.
const std::array<Axis, 5>& view_of(const std::vector<Axis>& axes) {
  for (const auto* view : {&kDenseView, &kExpertView}) {
    if (std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return contains(*view, axis); })) return *view;
  }
  std::string names;
  for (const Axis axis : axes) names.append(" ").append(to_string(axis));
  CHECK(false, "a group spans dense axes or expert axes, not both:{}", names);
  return kDenseView;
}

}  // namespace

std::string to_string(Axis axis) {
  static constexpr std::array<const char*, kNumAxes> kNames = {"tp",     "sp",        "dp_in", "pp",
                                                               "dp_out", "expert_tp", "ep",    "expert_dp_in"};
  return kNames.at(static_cast<size_t>(axis));
}

std::string to_string(Group group) {
  static constexpr std::array<const char*, kNumGroups> kNames = {"tp",        "sp", "tp_sp",        "dp_in", "dp_out",
                                                                 "dp",        "pp", "tied",         "zero",  "grad",
                                                                 "expert_tp", "ep", "expert_dp_in", "egrad", "world"};
  return kNames.at(static_cast<size_t>(group));
}

std::vector<Axis> axes_of(Group group) {
  switch (group) {
    case Group::tp:
      return {Axis::tp};
    case Group::sp:
      return {Axis::sp};
    case Group::tp_sp:
      return {Axis::tp, Axis::sp};
    case Group::dp_in:
      return {Axis::dp_in};
    case Group::dp_out:
      return {Axis::dp_out};
    case Group::dp:
      return {Axis::dp_in, Axis::dp_out};
    case Group::pp:
      return {Axis::pp};
    case Group::zero:
      return {Axis::sp, Axis::dp_in};
    case Group::grad:
      return {Axis::sp, Axis::dp_in, Axis::dp_out};
    case Group::expert_tp:
      return {Axis::expert_tp};
    case Group::ep:
      return {Axis::ep};
    case Group::expert_dp_in:
      return {Axis::expert_dp_in};
    case Group::egrad:
      return {Axis::expert_dp_in, Axis::dp_out};
    case Group::world:
      return {kDenseView.begin(), kDenseView.end()};
    case Group::tied:
      break;
  }
  CHECK(false, "group {} is not a product of axes", to_string(group));
  return {};
}

Mesh::Mesh(const Degrees& degrees) : degrees_(degrees) { throw_if_any(degree_problems(degrees)); }

int Mesh::degree(Axis axis) const {
  switch (axis) {
    case Axis::tp:
      return degrees_.tp;
    case Axis::sp:
      return degrees_.sp;
    case Axis::dp_in:
      return degrees_.dp_in;
    case Axis::pp:
      return degrees_.pp;
    case Axis::dp_out:
      return degrees_.dp_out;
    case Axis::expert_tp:
      return degrees_.expert_tp;
    case Axis::ep:
      return degrees_.ep;
    case Axis::expert_dp_in:
      return degrees_.expert_dp_in();
  }
  return 1;
}

Coordinates Mesh::coordinates(int rank) const {
  CHECK(0 <= rank && rank < world_size(), "rank {} lies in a world of {}", rank, world_size());
  Coordinates at;
  for (const auto* view : {&kDenseView, &kExpertView}) {
    int rest = rank;
    for (const Axis axis : *view) {
      at[axis] = rest % degree(axis);
      rest /= degree(axis);
    }
  }
  return at;
}

int Mesh::rank_at(const Coordinates& at) const {
  int rank = 0;
  int stride = 1;
  for (const Axis axis : kDenseView) {
    rank += at[axis] * stride;
    stride *= degree(axis);
  }
  return rank;
}

std::vector<int> Mesh::group(const std::vector<Axis>& axes, int rank) const {
  const Coordinates at = coordinates(rank);
  std::vector<int> members = {rank};
  int stride = 1;
  for (const Axis axis : view_of(axes)) {
    if (contains(axes, axis)) {
      // Slower axes repeat the members so far, `stride` ranks apart.
      const std::vector<int> faster = members;
      members.clear();
      for (int index = 0; index < degree(axis); ++index) {
        for (const int member : faster) members.push_back(member + (index - at[axis]) * stride);
      }
    }
    stride *= degree(axis);
  }
  return members;
}

std::vector<std::vector<int>> Mesh::groups(const std::vector<Axis>& axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world_size(); ++rank) {
    std::vector<int> members = group(axes, rank);
    if (members.front() == rank) all.push_back(std::move(members));
  }
  return all;
}

std::vector<int> Mesh::group(Group group, int rank) const {
  if (group != Group::tied) return this->group(axes_of(group), rank);
  const std::vector<int> pipeline = this->group(std::vector<Axis>{Axis::pp}, rank);
  if (degrees_.pp == 1 || (rank != pipeline.front() && rank != pipeline.back())) return {rank};
  return {pipeline.front(), pipeline.back()};
}

std::vector<std::vector<int>> Mesh::groups(Group group) const {
  if (group != Group::tied) return groups(axes_of(group));
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world_size(); ++rank) {
    std::vector<int> members = this->group(group, rank);
    if (members.front() == rank) all.push_back(std::move(members));
  }
  return all;
}

}  // namespace parallel
