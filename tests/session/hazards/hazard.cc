#include "tests/session/hazards/hazard.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "live/contents.h"

namespace steptape::tests {
namespace {

std::vector<at::Tensor> numbers_of(const torch::optim::OptimizerParamState& state) {
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state)) {
    return {sgd->momentum_buffer()};
  }
  if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(&state)) {
    return {at::scalar_tensor(adam->step(), at::kLong), adam->exp_avg(), adam->exp_avg_sq(),
            adam->max_exp_avg_sq()};
  }
  ADD_FAILURE() << "the state of this optimizer is not compared";
  return {};
}

std::vector<at::Generator> generators() {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(at::kCPU)};
  if (!device().is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device()));
  return generators;
}

/// Of the calls that neither record nor verify, in percent.
double share_of_replays(const Stats& stats) {
  const std::uint64_t rest = stats.steps - stats.recorded - stats.trials - stats.audits;
  return rest == 0 ? 0 : 100.0 * static_cast<double>(stats.replayed) / static_cast<double>(rest);
}

}  // namespace

std::vector<at::Tensor> optimizer_state(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      for (at::Tensor& tensor : numbers_of(*found->second)) tensors.push_back(tensor);
    }
  }
  return tensors;
}

at::Tensor loss_of(Net& model, const at::Tensor& images, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(model->forward(images), labels);
}

void poke(const at::Tensor& tensor, std::int64_t element, float value) {
  live::copy_bytes(static_cast<float*>(tensor.mutable_data_ptr()) + element, tensor.device(),
                   &value, c10::Device(c10::kCPU), sizeof value);
}

float peek(const at::Tensor& tensor, std::int64_t element) {
  float value = 0;
  live::copy_bytes(&value, c10::Device(c10::kCPU),
                   static_cast<const float*>(tensor.const_data_ptr()) + element, tensor.device(),
                   sizeof value);
  return value;
}

Lane::Lane() {
  for (const at::Generator& generator : generators()) {
    at::Generator seeded = generator.clone();
    seeded.set_current_seed(5);
    states_.push_back(seeded.get_state());
  }
}

Lane::Inside::Inside(Lane& lane) : lane_(lane) {
  for (std::size_t i = 0; i < lane_.states_.size(); ++i) {
    generators()[i].set_state(lane_.states_[i]);
  }
}

Lane::Inside::~Inside() {
  lane_.states_.clear();
  for (const at::Generator& generator : generators()) {
    lane_.states_.push_back(generator.get_state());
  }
}

void Verdicts::differ(const std::string& what) {
  if (differed_) return;
  differed_ = true;
  ADD_FAILURE() << "hazard " << name_ << ", step " << steps_ << ": the twins differ in " << what;
}

void Verdicts::compare(const std::vector<at::Tensor>& eager, const std::vector<at::Tensor>& taped) {
  const ::testing::AssertionResult same = all_same_bits(eager, taped);
  if (!same) differ(std::string("state: ") + same.message());
}

void Verdicts::expect_replays(const Stats& stats, const std::string& explanation) const {
  const double share = share_of_replays(stats);
  char text[32];
  std::snprintf(text, sizeof(text), "replayed %.1f%%", share);
  print_outcome(name_, text);
  EXPECT_GE(share, 90) << explanation;
  EXPECT_GE(stats.replayed * 2, stats.steps) << "most calls record or verify\n" << explanation;
}

void Verdicts::expect_replays_or(std::initializer_list<RefusalCode> codes, const Stats& stats,
                                 const std::string& explanation) const {
  const auto* found = std::find_if(codes.begin(), codes.end(),
                                   [&](RefusalCode code) { return has_refusal(stats, code); });
  if (found == codes.end()) return expect_replays(stats, explanation);
  print_outcome(name_, "refused " + std::string(name_of(*found)));
}

void print_outcome(const std::string& name, const std::string& outcome) {
  std::cout << "hazard " << name << ": " << outcome << std::endl;
}

bool has_refusal(const Stats& stats, RefusalCode code) {
  return std::any_of(stats.refusals.begin(), stats.refusals.end(),
                     [&](const CountedRefusal& counted) { return counted.refusal.code == code; });
}

}  // namespace steptape::tests
