#include "replayer/player/player_step.h"

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "live/stopwatch.h"
#include "replayer/planner/numbers/contradiction.h"
#include "replayer/player/spec_words.h"
#include "replayer/runtime/number_proofs.h"
#include "trace/numbers.h"

namespace steptape {
namespace {

TensorSpec spec_of(const trace::Recording& recording, trace::TensorId id, std::string path) {
  TensorSpec spec;
  spec.path = std::move(path);
  if (id == trace::kNoTensor) return spec;
  spec.dtype = name_of(recording.tensors[id].dtype);
  spec.sizes = recording.tensors[id].sizes;
  return spec;
}

std::string structure_of(const replayer::PlayerVariant& variant) {
  const auto& effects = variant.recording().effects;
  const auto results = std::ranges::find(effects, "results", &trace::Effect::name);
  return results == effects.end() ? "" : results->value;
}

std::vector<TensorSpec> inputs_of(const trace::Recording& recording) {
  std::vector<TensorSpec> specs;
  for (trace::Index i = 0; i < recording.inputs.size(); ++i) {
    const trace::Input& input = recording.inputs[i];
    const auto* tensor = std::get_if<trace::TensorRef>(&input.value.data);
    const trace::HeldInput* place = trace::place_of(recording, i);
    if (tensor == nullptr || (place != nullptr && place->is_carried)) continue;
    TensorSpec spec = spec_of(recording, tensor->id, place != nullptr ? place->path : input.path);
    if (input.range) std::tie(spec.low, spec.high) = *input.range;
    specs.push_back(std::move(spec));
  }
  return specs;
}

/// "float32[16, 64], int64[16]"
std::string signature(const trace::Recording& recording) {
  std::vector<std::string> words;
  for (const TensorSpec& spec : inputs_of(recording)) words.push_back(replayer::words_of(spec));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string signature(std::span<const at::Tensor> inputs) {
  std::vector<std::string> words;
  for (const at::Tensor& input : inputs) words.push_back(replayer::words_of(input));
  return fmt::format("{}", fmt::join(words, ", "));
}

bool is_about_geometry(const Verdict& verdict) {
  return verdict.kind == GuardKind::kShape || verdict.kind == GuardKind::kDtype ||
         verdict.kind == GuardKind::kArgumentCount;
}

using Refused = std::vector<std::pair<Verdict, replayer::PlayerVariant*>>;

/// Why none of several variants holds. Where all differ in their shapes: which shapes there are.
/// Else the first that has the call's shapes says why, or the last one.
Verdict joined(const Refused& refused, std::span<const at::Tensor> inputs) {
  for (const auto& [verdict, variant] : refused) {
    if (!is_about_geometry(verdict)) return verdict;
  }
  const auto takes_others = [&inputs](const auto& each) {
    return inputs_of(each.second->recording()).size() != inputs.size();
  };
  std::set<std::string> seen;
  std::vector<std::string> signatures;
  for (const auto& [verdict, variant] : refused) {
    const std::string words = signature(variant->recording());
    if (seen.insert(words).second) signatures.push_back(words);
  }
  if (std::ranges::all_of(refused, takes_others)) {
    // a place of the program's that each call gives another tensor counts as an input of the step
    return {"inputs.size",
            fmt::format("{} ({})", inputs_of(refused.front().second->recording()).size(),
                        fmt::join(signatures, " or ")),
            fmt::format("{} ({})", inputs.size(), signature(inputs)), GuardKind::kArgumentCount};
  }
  if (signatures.size() < 2) return refused.back().first;
  return {"inputs", fmt::format("{}", fmt::join(signatures, " or ")), signature(inputs),
          GuardKind::kShape};
}

constexpr auto kNothing = [](replayer::PlayerVariant&) {};

}  // namespace

Verdict PlayerStep::Impl::find(std::span<const at::Tensor> inputs) {
  state.renew();
  const auto excludes = [this](const replayer::PlayerVariant* a, const replayer::PlayerVariant* b) {
    const auto [known, is_new] = exclude.try_emplace({a, b}, false);
    if (is_new) known->second = replayer::exclude_each_other(a->recording(), b->recording());
    return known->second;
  };
  for (const auto& variant : variants) {
    if (!variant->takes(inputs)) continue;
    if (!variant->check(variant->arguments_of(inputs))) {
      variant->forget_arguments();
      continue;
    }
    const bool is_apart = std::ranges::all_of(
        holding, [&](const auto* other) { return excludes(other, variant.get()); });
    holding.push_back(variant.get());
    if (is_apart) continue;
    forget_arguments();
    return {"variant", "one that holds",
            "several, told apart by a string or another fact that the player does not hold"};
  }
  if (!holding.empty()) return {};
  Refused refused;
  for (const auto& variant : variants) {
    refused.emplace_back(variant->check(variant->arguments_of(inputs)), variant.get());
    variant->forget_arguments();
  }
  return joined(refused, inputs);
}

void PlayerStep::Impl::forget_arguments() {
  for (replayer::PlayerVariant* variant : holding) variant->forget_arguments();
  holding.clear();
}

bool PlayerStep::Impl::writes_state() const {
  return std::ranges::any_of(variants, [](const auto& each) { return each->writes_state(); });
}

void PlayerStep::Impl::refuse(const Verdict& verdict, double us) {
  last_verdict = verdict;
  counters->refused();
  events->tell({PlayerEvent::Kind::kRefused, name, us, verdict.text()});
  throw Error(
      ErrorCode::kFailedPrecondition,
      "step \"" + name + "\" was not run: " + verdict.text() +
          (variants.size() > 1 ? fmt::format(" (none of {} variants holds)", variants.size())
                               : ""));
}

template <typename Prepare, typename Run>
const replayer::PlayerVariant& PlayerStep::Impl::run_alone(std::span<const at::Tensor> inputs,
                                                           Prepare prepare, Run run) {
  using Kind = PlayerEvent::Kind;
  const live::Stopwatch watch;
  Verdict verdict = find(inputs);
  const auto at_end = c10::make_scope_exit([this] { forget_arguments(); });
  replayer::PlayerVariant* variant = nullptr;
  for (replayer::PlayerVariant* each : holding) {
    prepare(*each);
    try {
      run(*each);
      variant = each;
      break;
    } catch (const replayer::AssumptionViolated& changed) {
      verdict = changed.verdict;  // in mid-run, and all was put back: it may be another one's turn
    } catch (const std::exception& error) {
      counters->failed();
      events->tell({Kind::kFailed, name, watch.us(), error.what()});
      throw;
    }
  }
  if (variant == nullptr) refuse(verdict, watch.us());
  last_verdict = {};
  newest = variant;
  ++runs;
  const double us = watch.us();
  counters->ran(us);
  events->tell({Kind::kRan, name, us});
  return *variant;
}

template <typename Prepare, typename Run>
void PlayerStep::Impl::run(std::span<const at::Tensor> inputs, Prepare prepare, Run run) {
  const replayer::PlayerVariant& variant = run_alone(inputs, prepare, run);
  for (const std::string& path : variant.recording().updates) {
    updates.at(path)->run_alone(
        {}, kNothing, [](replayer::PlayerVariant& update) { update.run(update.arguments()); });
  }
  if (variant.writes_state() && wrote_state) wrote_state();
}

std::vector<at::Tensor> PlayerStep::run(const std::vector<at::Tensor>& inputs) {
  replayer::Results results;
  impl_->run(inputs, kNothing, [&](replayer::PlayerVariant& variant) {
    results = variant.run(variant.arguments());
    impl_->numbers = std::move(results.numbers);
  });
  return std::move(results.tensors);
}

std::vector<at::Tensor> PlayerStep::run(const std::vector<at::Tensor>& inputs,
                                        std::vector<StageTime>& times) {
  replayer::Results results;
  impl_->run(inputs, kNothing, [&](replayer::PlayerVariant& variant) {
    results = variant.run(variant.arguments(), &times);
    impl_->numbers = std::move(results.numbers);
  });
  return std::move(results.tensors);
}

void PlayerStep::run_into(std::span<const at::Tensor> inputs, std::span<const at::Tensor> results) {
  const auto prepare = [&results](replayer::PlayerVariant& variant) {
    variant.require_fits(results);
  };
  impl_->run(inputs, prepare, [&](replayer::PlayerVariant& variant) {
    variant.run_into(variant.arguments(), results, impl_->numbers);
  });
}

const Verdict& PlayerStep::last_verdict() const { return impl_->last_verdict; }
std::uint64_t PlayerStep::recorded_call() const {
  return impl_->newest == nullptr ? 0 : impl_->newest->recording().call;
}
std::uint64_t PlayerStep::runs() const { return impl_->runs; }
bool PlayerStep::writes_state() const { return impl_->writes_state(); }

Verdict PlayerStep::check(const std::vector<at::Tensor>& inputs) const {
  Verdict verdict = impl_->find(inputs);
  impl_->forget_arguments();
  return verdict;
}

const std::vector<double>& PlayerStep::numbers() const { return impl_->numbers; }

const std::string& PlayerStep::name() const { return impl_->name; }

std::vector<TensorSpec> PlayerStep::inputs() const {
  return inputs_of(impl_->variants.front()->recording());
}

std::vector<std::vector<TensorSpec>> PlayerStep::inputs_of_variants() const {
  std::vector<std::vector<TensorSpec>> all;
  for (const auto& variant : impl_->variants) all.push_back(inputs_of(variant->recording()));
  return all;
}

std::vector<TensorSpec> PlayerStep::results() const {
  const trace::Recording& recording = impl_->variants.front()->recording();
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < recording.results.size() - recording.observed; ++i) {
    specs.push_back(spec_of(recording, recording.results[i], "results[" + std::to_string(i) + "]"));
  }
  return specs;
}

std::vector<PlanStats> PlayerStep::variants() const {
  std::vector<PlanStats> stats;
  for (const auto& variant : impl_->variants) {
    stats.push_back(variant->stats());
    stats.back().number = stats.size() - 1;
  }
  return stats;
}

std::string PlayerStep::ambient(const std::string& name) const {
  for (const trace::Fact& fact : impl_->variants.front()->recording().ambient) {
    if (fact.name == name) return fact.value;
  }
  return "";
}

std::string PlayerStep::structure() const {
  return structure_of(impl_->newest != nullptr ? *impl_->newest : *impl_->variants.front());
}

std::vector<std::string> PlayerStep::structures() const {
  std::vector<std::string> structures;
  for (const auto& variant : impl_->variants) structures.push_back(structure_of(*variant));
  return structures;
}

at::Tensor PlayerStep::single(std::vector<at::Tensor> results) {
  if (results.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument, "the step has " + std::to_string(results.size()) +
                                                 " results; call run() to get them all");
  }
  return std::move(results.front());
}

}  // namespace steptape
