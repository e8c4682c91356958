#include "model/config.h"

#include <charconv>
#include <cmath>

namespace model {

std::optional<MoeLayers> parse_moe_layers(std::string_view text) {
  using Kind = MoeLayers::Kind;
  if (text == "all") return MoeLayers{};
  for (const auto& [prefix, kind] : {std::pair{std::string_view("every:"), Kind::every}, {"after:", Kind::after}}) {
    if (!text.starts_with(prefix)) continue;
    const std::string_view number = text.substr(prefix.size());
    MoeLayers layers{.kind = kind};
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layers.n);
    const bool is_number = error == std::errc() && end == number.data() + number.size();
    if (is_number && layers.n >= (kind == Kind::every ? 1 : 0)) return layers;
  }
  return std::nullopt;
}

bool ModelConfig::has_experts(int64_t layer) const {
  if (moe.num_experts == 0) return false;
  const std::optional<MoeLayers> layers = parse_moe_layers(moe.layers);
  CHECK(layers.has_value(), "model.moe.layers = \"{}\" was checked", moe.layers);
  if (layers->kind == MoeLayers::Kind::every) return (layer + 1) % layers->n == 0;
  return layers->kind == MoeLayers::Kind::all || layer >= layers->n;
}

int64_t ModelConfig::num_moe_layers() const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) count += has_experts(layer) ? 1 : 0;
  return count;
}

int64_t ModelConfig::ffn_size() const {
  if (ffn_hidden_size) return ffn_hidden_size;
  if (!tensor::is_gated(activation)) return 4 * hidden_size;
  return (8 * hidden_size / 3 + 63) / 64 * 64;
}

double ModelConfig::residual_init_std() const { return init_std / std::sqrt(2.0 * static_cast<double>(num_layers)); }

int64_t ModelConfig::rotary_dim() const {
  // The small term: 0.58 * 100 is 57.99... in binary, and must give 58.
  return 2 * static_cast<int64_t>(rope_fraction * static_cast<double>(head_size()) / 2 + 1e-9);
}

}  // namespace model
