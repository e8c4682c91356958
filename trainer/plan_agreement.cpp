#include "trainer/plan_agreement.h"

#include <numeric>

#include "trainer/config_reader.h"
#include "trainer/fnv.h"

namespace trainer {

using tensor::Tensor;

namespace {

int64_t fingerprint(const std::string& text) { return static_cast<int64_t>(fnv1a(text)); }

/// "rank 3", "ranks 1, 2, 3 and 5 more"
std::string in_words(const std::vector<size_t>& ranks) {
  constexpr size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(kNamed, ranks.size()); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return ranks.size() <= kNamed ? text : text + fmt::format(" and {} more", ranks.size() - kNamed);
}

template <class Differs>
std::vector<size_t> ranks_where(const std::vector<Fingerprints>& of_ranks, const Differs& differs) {
  std::vector<size_t> ranks;
  for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
    if (differs(of_ranks[rank])) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

void require_equal(const std::vector<Fingerprints>& of_ranks) {
  const Fingerprints& first = of_ranks.front();
  const auto configs = ranks_where(of_ranks, [&](const Fingerprints& own) { return own.config != first.config; });
  if (!configs.empty()) {
    throw tensor::LayoutError(
        fmt::format("Of {} ranks, {} read another config than rank 0.\n"
                    "  The ranks of a run follow one plan, which is made from the config and the number of ranks.\n"
                    "  Fix: give all ranks the same --set, and the same file: a copy on a node's own disk may be old.",
                    of_ranks.size(), in_words(configs)));
  }
  const auto plans = ranks_where(of_ranks, [&](const Fingerprints& own) { return own.plan != first.plan; });
  if (plans.empty()) return;
  throw tensor::LayoutError(
      fmt::format("Of {} ranks, {} made another plan than rank 0 of the same config.\n"
                  "  The ranks of a run follow one plan; programs of different versions make different ones.\n"
                  "  Fix: start the same trainer on every node ('trainer --version' says which it is).",
                  of_ranks.size(), in_words(plans)));
}

void require_same_plan(const Plan& plan, const Config& config, parallel::CommunicatorFactory& factory,
                       tensor::Device& device) {
  constexpr auto kDtype = tensor::Dtype::int64;
  const Fingerprints own = {fingerprint(to_json(plan)), fingerprint(to_toml(config))};
  std::vector<int> ranks(static_cast<size_t>(plan.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto world = factory.make("world", ranks);

  const int64_t numbers[] = {own.plan, own.config};
  Tensor part = device.allocate({1, 2}, kDtype, tensor::MemoryCategory::other);
  Tensor whole = device.allocate({plan.world_size, 2}, kDtype, tensor::MemoryCategory::other);
  device.copy_from_host(numbers, part);
  world->all_gather(part, whole).wait();

  std::vector<int64_t> gathered(2 * ranks.size());
  device.copy_to_host(whole, gathered.data());
  std::vector<Fingerprints> of_ranks;
  for (size_t i = 0; i < gathered.size(); i += 2) of_ranks.push_back({gathered[i], gathered[i + 1]});
  require_equal(of_ranks);
}

}  // namespace trainer
