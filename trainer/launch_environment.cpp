#include "trainer/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace trainer {

namespace {

/// The nearest launcher first: mpirun may run inside an allocation's own step.
constexpr const char* kStepSize = "SLURM_STEP_NUM_TASKS";
constexpr const char* kSizeVariables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", kStepSize};
/// Launchers that speak PMI or PMIx without a size of their own.
constexpr const char* kRankVariables[] = {"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD"};

struct Setting {
  const char* variable;
  const char* value;
};
/// Open MPI 4: no daemon for MPI_Comm_spawn, messages to itself only, no search for InfiniBand. And no session folder:
/// all processes without a daemon would use the same one, and one that ends takes it away from one that starts.
constexpr Setting kAlone[] = {{"OMPI_MCA_ess_singleton_isolated", "1"},
                              {"OMPI_MCA_btl", "self"},
                              {"OMPI_MCA_pml", "ob1"},
                              {"OMPI_MCA_orte_create_session_dirs", "0"}};

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

/// Nothing where it is not a number: such a value is no claim of ours to judge.
std::optional<int> number_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return {};
  const std::string_view text = value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return {};
  return number;
}

/// srun started this process, and neither it nor an mpirun below it tells of the others.
bool is_step_without_pmi() {
  return is_set(kStepSize) && !is_set("OMPI_COMM_WORLD_SIZE") && !is_set("PMI_SIZE") &&
         !std::ranges::any_of(kRankVariables, is_set);
}

}  // namespace

std::vector<parallel::LaunchClaim> launch_claims() {
  std::vector<parallel::LaunchClaim> claims;
  for (const char* variable : kSizeVariables) {
    if (const std::optional<int> number = number_in(variable)) claims.push_back({variable, *number});
  }
  return claims;
}

int64_t requested_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const long number = text ? std::strtol(text, nullptr, 10) : 0;
  return number > 0 && number <= 4096 ? number : 0;
}

Peers peers_of_this_task() {
  if (!is_step_without_pmi() || number_in(kStepSize).value_or(1) == 1) return Peers::fine;
  return number_in("SLURM_PROCID") ? Peers::missing_said_by_another : Peers::missing;  // number_in() knows no 0
}

void prepare_for_mpi() {
  if (is_step_without_pmi()) {
    ::unsetenv("SLURM_STEP_ID");  // else MPI_Init takes srun for its launcher, and ends the process
  } else if (std::ranges::any_of(kSizeVariables, is_set) || std::ranges::any_of(kRankVariables, is_set)) {
    return;
  }
  constexpr int kKeepWhatIsSet = 0;
  for (const Setting& setting : kAlone) ::setenv(setting.variable, setting.value, kKeepWhatIsSet);
}

}  // namespace trainer
