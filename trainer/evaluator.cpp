#include "trainer/evaluator.h"

#include <algorithm>
#include <numbers>

namespace trainer {

Evaluator::Evaluator(const Config& config, std::optional<data::Dataset> dataset)
    : batch_size_(config.train.global_batch_size),
      tokens_are_bytes_(config.data.tokenizer == "bytes"),
      dataset_(std::move(dataset)) {
  if (dataset_) num_samples_ = std::min(config.train.eval_steps * batch_size_, dataset_->num_samples());
  if (config.train.eval_every > 0 && num_samples_ == 0) {
    throw tensor::DataError(fmt::format(
        "train.eval_every = {} asks for evaluation, but there is no validation sample of model.seq_len = {} tokens.\n"
        "  Fix: name files in data.valid, raise data.valid_fraction = {}, or set train.eval_every = 0.",
        config.train.eval_every, config.model.seq_len, config.data.valid_fraction));
  }
  if (num_samples_ > 0) data::read_batch(*dataset_, 0, std::min(batch_size_, num_samples_));
}

LossSum Evaluator::run(Learner& learner) const {
  LossSum sum;
  const int64_t num_ranks = learner.context().num_data_ranks();
  for (int64_t begin = 0; begin < num_samples_; begin += batch_size_) {
    const int64_t count = std::min(batch_size_, num_samples_ - begin);
    const int64_t most = (count + num_ranks - 1) / num_ranks;
    const int64_t first = std::min(count, most * learner.context().data_rank());
    const int64_t last = std::min(count, first + most);
    const LossSum part = learner.evaluate(data::read_batch(*dataset_, begin + first, last - first), most);
    sum.loss += part.loss;
    sum.num_targets += part.num_targets;
  }
  return sum;
}

std::vector<std::pair<std::string, double>> Evaluator::metrics(const LossSum& loss) const {
  std::vector<std::pair<std::string, double>> metrics = {{"valid_loss", loss.mean()}};
  if (tokens_are_bytes_) metrics.emplace_back("valid_bits_per_byte", loss.mean() / std::numbers::ln2);
  return metrics;
}

std::string Evaluator::describe(const LossSum& loss) const {
  std::string text;
  for (const auto& [name, value] : metrics(loss))
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  return text;
}

}  // namespace trainer
