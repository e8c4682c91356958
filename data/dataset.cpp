#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "tensor/error.h"

namespace data {

using tensor::ConfigError;
using tensor::DataError;

namespace {

/// How many of a file's samples valid_fraction keeps back: at least one where it keeps any.
int64_t num_held_out(int64_t num_samples, double valid_fraction) {
  if (valid_fraction == 0) return 0;
  return std::max<int64_t>(1, std::llround(static_cast<double>(num_samples) * valid_fraction));
}

void check_config(const DataConfig& config, const DatasetOptions& options) {
  if (!(config.valid_fraction >= 0 && config.valid_fraction < 1))
    throw ConfigError(
        fmt::format("data.valid_fraction = {} is outside [0, 1).\n"
                    "  Fix: use the share to evaluate on, such as 0.01.",
                    config.valid_fraction));
  if (options.seq_len < 1)
    throw ConfigError(fmt::format("model.seq_len = {} must be at least 1.\n  Fix: use the context length of the model.",
                                  options.seq_len));
}

}  // namespace

Dataset::Dataset(std::vector<Source> sources, Order order, const DataConfig& config, int64_t seq_len)
    : sources_(std::move(sources)), order_(std::move(order)), document_mask_(config.document_mask), seq_len_(seq_len) {
  for (const Source& source : sources_) num_samples_ += source.num_samples;
}

Dataset::Source Dataset::open_source(const DataSource& source, const DataConfig& config,
                                     const DatasetOptions& options) {
  TokenFile file = TokenFile::open(
      source.path, {.vocab_size = options.vocab_size, .eod_id = config.eod_id, .access = config.access});
  const int64_t num_samples = (file.num_tokens() - 1) / options.seq_len;
  if (num_samples < 1)
    throw DataError(
        fmt::format("{}: has {} tokens; one sample needs model.seq_len + 1 = {}.\n"
                    "  Fix: use more text or a smaller model.seq_len.",
                    file.path(), file.num_tokens(), options.seq_len + 1));
  return {.file = std::move(file), .weight = source.weight, .first_sample = 0, .num_samples = num_samples};
}

Dataset Dataset::open_train(const DataConfig& config, const DatasetOptions& options) {
  check_config(config, options);
  if (config.train.empty())
    throw ConfigError("data.train is empty.\n  Fix: list token files; `trainer data build` makes them from text.");
  const double held_out = config.valid.empty() ? config.valid_fraction : 0;
  std::vector<Source> sources;
  std::vector<SourceSize> sizes;
  for (const DataSource& entry : config.train) {
    Source source = open_source(entry, config, options);
    const int64_t total = source.num_samples;
    source.num_samples -= num_held_out(total, held_out);
    if (source.num_samples < 1)
      throw DataError(
          fmt::format("{}: has {} samples of {} tokens, and data.valid_fraction = {} leaves none to train on.\n"
                      "  Fix: use more text, a smaller model.seq_len, or separate files in data.valid.",
                      source.file.path(), total, options.seq_len, held_out));
    sizes.push_back({.num_samples = source.num_samples, .weight = source.weight});
    sources.push_back(std::move(source));
  }
  return Dataset(std::move(sources), SampleOrder(options.seed, std::move(sizes)), config, options.seq_len);
}

std::optional<Dataset> Dataset::open_valid(const DataConfig& config, const DatasetOptions& options) {
  check_config(config, options);
  std::vector<Source> sources;
  for (const std::string& path : config.valid)
    sources.push_back(open_source({.path = path, .weight = 0}, config, options));
  if (config.valid.empty() && config.valid_fraction > 0) {
    for (const DataSource& entry : config.train) {
      Source source = open_source(entry, config, options);
      const int64_t kept = num_held_out(source.num_samples, config.valid_fraction);
      source.first_sample = source.num_samples - kept;
      source.num_samples = kept;
      sources.push_back(std::move(source));
    }
  }
  if (sources.empty()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Source& source : sources) sizes.push_back(source.num_samples);
  return Dataset(std::move(sources), InTurnOrder(std::move(sizes)), config, options.seq_len);
}

SampleRef Dataset::locate(int64_t sample) const {
  return std::visit([&](const auto& order) { return order.at(sample); }, order_);
}

int64_t Dataset::read(int64_t sample, const SampleBuffer& out) const {
  const SampleRef ref = locate(sample);
  const Source& source = sources_[ref.source];
  const int64_t begin = (source.first_sample + ref.index) * seq_len_;
  source.file.read(begin, seq_len_, out.tokens);
  std::copy(out.tokens + 1, out.tokens + seq_len_, out.targets);
  source.file.read(begin + seq_len_, 1, out.targets + seq_len_ - 1);
  for (int64_t i = 0; i < seq_len_; ++i) out.positions[i] = static_cast<int32_t>(i);
  std::fill_n(out.document_start, seq_len_, 0);
  return document_mask_ ? seq_len_ - mark_documents(source.file, begin, out) : seq_len_;
}

/// Fills in document_start and ignores the target of each document's last token; returns how many it ignored.
int64_t Dataset::mark_documents(const TokenFile& file, int64_t begin, const SampleBuffer& out) const {
  std::vector<int64_t> starts;
  file.document_starts(begin, begin + seq_len_ + 1, starts);
  for (const int64_t start : starts) {
    const int64_t position = start - begin;  // in [1, seq_len]
    out.targets[position - 1] = kIgnoredTarget;
    std::fill(out.document_start + position, out.document_start + seq_len_, static_cast<int32_t>(position));
  }
  return static_cast<int64_t>(starts.size());
}

std::string Dataset::description() const {
  std::string text = fmt::format("seq_len {} document_mask {}", seq_len_, document_mask_);
  for (const Source& source : sources_)
    text += fmt::format("; samples {}+{} of {} tokens weight {}", source.first_sample, source.num_samples,
                        source.file.num_tokens(), source.weight);
  return text;
}

void Dataset::check_unchanged() const {
  for (const Source& source : sources_) source.file.check_unchanged();
}

}  // namespace data
