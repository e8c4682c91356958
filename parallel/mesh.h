#pragma once
/// Which rank sits where, and who talks to whom: pure functions of the degrees, with no MPI.
///
/// Axes, fastest first: tp, sp, dp_in, pp, dp_out. So tp neighbours are neighbouring ranks (one NVLink domain), a
/// pipeline fits a pod, and dp_out crosses pods. Experts see the block (tp, sp, dp_in) again as (expert_tp, ep,
/// expert_dp_in): ep never multiplies the world size.
///   rank = tp + TP * (sp + SP * (dp_in + DP_IN * (pp + PP * dp_out)))
///        = expert_tp + EXPERT_TP * (ep + EP * (expert_dp_in + EXPERT_DP_IN * (pp + PP * dp_out)))

#include <array>
#include <string>
#include <vector>

namespace parallel {

/// How many ranks lie along each axis. expert_dp_in follows from the others.
struct Degrees {
  int tp = 1;
  int sp = 1;
  int dp_in = 1;  ///< data parallel inside a pipeline copy's pod; ZeRO shards here
  int pp = 1;
  int dp_out = 1;  ///< data parallel across pods
  int ep = 1;
  int expert_tp = 1;

  int dp() const { return dp_in * dp_out; }
  int block() const { return tp * sp * dp_in; }  ///< ranks that dense and expert axes factor differently
  int world() const { return block() * pp * dp_out; }
  int expert_dp_in() const { return block() / (expert_tp * ep); }
  int expert_dp() const { return expert_dp_in() * dp_out; }
  bool operator==(const Degrees&) const = default;
};

enum class Axis { tp, sp, dp_in, pp, dp_out, expert_tp, ep, expert_dp_in };
constexpr int kNumAxes = 8;
std::string to_string(Axis axis);

/// The groups that the program talks in, by what they are for.
enum class Group {
  tp,
  sp,
  tp_sp,  ///< all ranks that hold parts of the same sequences: tp x sp
  dp_in,
  dp_out,
  dp,  ///< dp_in x dp_out
  pp,
  tied,  ///< first and last stage of a pipeline (tied embeddings); ranks of the stages between are alone
  zero,  ///< what ZeRO shards dense parameters over when dp_out replicates: sp x dp_in
  grad,  ///< sums dense gradients: sp x dp_in x dp_out
  expert_tp,
  ep,
  expert_dp_in,
  egrad,  ///< sums expert gradients: expert_dp_in x dp_out
  world,
};
constexpr int kNumGroups = 15;
std::string to_string(Group group);

/// Index along every axis, in the order of `Axis`.
class Coordinates {
 public:
  int operator[](Axis axis) const { return index_[static_cast<size_t>(axis)]; }
  int& operator[](Axis axis) { return index_[static_cast<size_t>(axis)]; }
  bool operator==(const Coordinates&) const = default;

 private:
  std::array<int, kNumAxes> index_{};
};

class Mesh {
 public:
  /// Throws LayoutError where expert_tp * ep does not divide the block, or a degree is below 1.
  explicit Mesh(const Degrees& degrees);

  const Degrees& degrees() const { return degrees_; }
  int world_size() const { return degrees_.world(); }
  int degree(Axis axis) const;

  Coordinates coordinates(int rank) const;
  int rank_at(const Coordinates& at) const;  ///< by the dense axes; the expert ones are not read

  /// The members of rank's group, in order of place in the group.
  std::vector<int> group(Group group, int rank) const;
  /// All groups of a kind. They partition the world; listed by the axes they do not span, fastest first.
  std::vector<std::vector<int>> groups(Group group) const;

  /// The same for any set of axes of one view: all dense, or all of (expert_tp, ep, expert_dp_in, pp, dp_out).
  std::vector<int> group(const std::vector<Axis>& axes, int rank) const;
  std::vector<std::vector<int>> groups(const std::vector<Axis>& axes) const;

 private:
  Degrees degrees_;
};

/// The axes that a group spans. `tied` spans part of pp only, and is refused.
std::vector<Axis> axes_of(Group group);

}  // namespace parallel
