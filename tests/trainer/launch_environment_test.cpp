#include "trainer/launch_environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <optional>
#include <string>

namespace trainer {
namespace {

/// Takes the launcher's variables away for as long as a test runs, and puts them back.
class LaunchEnvironment : public testing::Test {
 protected:
  LaunchEnvironment() {
    for (const char* variable : kVariables) {
      const char* value = ::getenv(variable);
      before_[variable] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(variable);
    }
  }
  ~LaunchEnvironment() override {
    for (const auto& [variable, value] : before_) {
      value ? ::setenv(variable.c_str(), value->c_str(), 1) : ::unsetenv(variable.c_str());
    }
  }

  static void set(const char* variable, const char* value) { ::setenv(variable, value, 1); }
  static std::string get(const char* variable) {
    const char* value = ::getenv(variable);
    return value ? value : "(unset)";
  }

 private:
  static constexpr const char* kVariables[] = {"OMP_NUM_THREADS",
                                               "OMPI_COMM_WORLD_SIZE",
                                               "PMI_SIZE",
                                               "SLURM_STEP_NUM_TASKS",
                                               "SLURM_STEP_ID",
                                               "SLURM_PROCID",
                                               "PMIX_RANK",
                                               "PMIX_NAMESPACE",
                                               "PMI_RANK",
                                               "PMI_FD",
                                               "OMPI_MCA_ess_singleton_isolated",
                                               "OMPI_MCA_btl",
                                               "OMPI_MCA_pml",
                                               "OMPI_MCA_orte_create_session_dirs"};
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(LaunchEnvironment, ClaimsNothingForABareStart) { EXPECT_TRUE(launch_claims().empty()); }

TEST_F(LaunchEnvironment, BelievesMpirunBeforeTheStepItRunsIn) {
  set("SLURM_STEP_NUM_TASKS", "2");
  set("OMPI_COMM_WORLD_SIZE", "16");

  const auto claims = launch_claims();

  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[0].variable, "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(claims[0].num_ranks, 16);
  EXPECT_EQ(claims[1].num_ranks, 2);
}

TEST_F(LaunchEnvironment, LeavesOutWhatIsNoNumberOfRanks) {
  for (const char* value : {"", "four", "4(x2)", "0", "-3", "99999999999"}) {
    set("SLURM_STEP_NUM_TASKS", value);
    EXPECT_TRUE(launch_claims().empty()) << value;
  }
}

TEST_F(LaunchEnvironment, ReadsTheThreadsThatOpenMpIsToldToUse) {
  const std::pair<const char*, int64_t> cases[] = {{"3", 3}, {"4,2", 4}, {"0", 0}, {"-2", 0}, {"many", 0}};
  for (const auto& [text, threads] : cases) {
    set("OMP_NUM_THREADS", text);
    EXPECT_EQ(requested_threads(), threads) << text;
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(requested_threads(), 0);
}

TEST_F(LaunchEnvironment, SparesABareStartTheDaemonOfOpenMpi) {
  prepare_for_mpi();

  EXPECT_EQ(get("OMPI_MCA_ess_singleton_isolated"), "1");
  EXPECT_EQ(get("OMPI_MCA_btl"), "self");
}

/// Their folder in /tmp would be the same, and gone with the first that ends: some of many starts failed.
TEST_F(LaunchEnvironment, KeepsBareStartsOutOfEachOthersFolder) {
  prepare_for_mpi();

  EXPECT_EQ(get("OMPI_MCA_orte_create_session_dirs"), "0");
}

TEST_F(LaunchEnvironment, KeepsWhatTheUserSet) {
  set("OMPI_MCA_btl", "tcp,self");

  prepare_for_mpi();

  EXPECT_EQ(get("OMPI_MCA_btl"), "tcp,self");
}

TEST_F(LaunchEnvironment, ChangesNothingUnderALauncher) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_FD"}) {
    set(variable, "1");
    prepare_for_mpi();
    EXPECT_EQ(get("OMPI_MCA_btl"), "(unset)") << variable;
    ::unsetenv(variable);
  }
}

TEST_F(LaunchEnvironment, LetsOneTaskSayThatAStepHasNoPmi) {
  set("SLURM_STEP_NUM_TASKS", "4");
  set("SLURM_PROCID", "0");
  EXPECT_EQ(peers_of_this_task(), Peers::missing);
  set("SLURM_PROCID", "3");
  EXPECT_EQ(peers_of_this_task(), Peers::missing_said_by_another);
  set("PMIX_RANK", "3");
  EXPECT_EQ(peers_of_this_task(), Peers::fine);
}

TEST_F(LaunchEnvironment, StartsTheOnlyTaskOfAStepWithoutPmiAlone) {
  set("SLURM_STEP_NUM_TASKS", "1");
  set("SLURM_STEP_ID", "7");

  prepare_for_mpi();

  EXPECT_EQ(peers_of_this_task(), Peers::fine);
  EXPECT_EQ(get("SLURM_STEP_ID"), "(unset)");
  EXPECT_EQ(get("OMPI_MCA_btl"), "self");
}

}  // namespace
}  // namespace trainer
