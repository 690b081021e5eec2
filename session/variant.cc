#include "session/variant.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "live/stopwatch.h"
#include "replayer/runtime/backends.h"
#include "session/session_state.h"
#include "steptape/error.h"
#include "trace/refusals.h"

namespace steptape::session {
namespace {

AuditSchedule audits_of(const Options& options, std::uint64_t number) {
  const std::uint64_t seed = options.audit_seed != 0 ? options.audit_seed : std::random_device{}();
  return {options.verify.rate, seed + number};
}

/// As they are now: an executor may ask again in mid-run, where no object of Python may be looked
/// at.
replayer::GeneratorOf generators_of(const live::Objects& objects) {
  return [generators = objects.generators()](const std::string& path) {
    for (const auto& [name, generator] : generators) {
      if (name == path) return generator;
    }
    throw Error(ErrorCode::kInternal, "no generator " + path);
  };
}

/// Numbers of a front end that follows none, which two recordings have explained: their ops may
/// make more of them. What enters ops of a known optimizer is known whole.
void hold_explained_numbers(trace::Recording& recording) {
  std::set<trace::Index> formulas;
  for (const trace::ScalarSite& site : recording.scalars) formulas.insert(site.formula);
  for (const trace::Index formula : formulas) {
    const bool is_of_optimizers =
        std::ranges::all_of(trace::leaves_of(recording.formulas[formula]), [&](trace::Index leaf) {
          const trace::LeafKind kind = recording.leaves[leaf].kind;
          return kind == trace::LeafKind::kHyperparameter || kind == trace::LeafKind::kStateNumber;
        });
    if (!is_of_optimizers) recording.proofs.push_back({formula, {}, false});
  }
}

}  // namespace

void Variant::prove(const replayer::Numbers& numbers) {
  guards->prove([&numbers](const std::string& path) -> std::optional<double> {
    const auto found = numbers.find(path);
    if (found == numbers.end()) return std::nullopt;
    return found->second;
  });
  number_proofs.add(numbers);
}

bool Variant::suspect(trace::Index op) {
  constexpr std::size_t kMostSuspects = 64;
  if (suspects.size() >= kMostSuspects) return false;
  if (std::ranges::find(suspects, op, &SuspectOp::op) != suspects.end()) return false;
  suspects.push_back({op});
  return executor->set_apart(std::span(&op, 1));
}

PlanStats Variant::stats() const {
  PlanStats stats = executor->stats();
  stats.number = number;
  stats.plan_us = plan_us;
  stats.replays = replays;
  stats.rebinds = rebinds;
  stats.is_warm_start = is_warm_start;
  for (const SuspectOp& suspect : suspects) {
    if (!suspect.is_known) continue;
    Refusal at = trace::refusal_at(*recording, suspect.op, RefusalCode::kNondeterministicOp, "");
    stats.nondeterministic.push_back({std::move(at.op), at.op_index, std::move(at.module),
                                      std::move(at.place), suspect.spread,
                                      suspect.largest_difference});
  }
  return stats;
}

std::unique_ptr<Variant> make_variant(recorder::Recorded recorded, SessionState& session,
                                      std::uint64_t number) {
  const live::Stopwatch watch;
  if (!recorded.hints.said.follows_numbers) hold_explained_numbers(recorded.recording);
  auto recording = std::make_shared<trace::Recording>(std::move(recorded.recording));
  auto executor = replayer::make_executor(recording, generators_of(session.objects),
                                          {.static_gradients = session.options.static_gradients,
                                           .pools = session.device_pools,
                                           .is_compared = session.options.verify.first});
  std::vector<guards::OutsideTensor> outside;
  for (recorder::Outside& tensor : recorded.outside) {
    auto& known = outside.emplace_back(guards::OutsideTensor{tensor.path, tensor.storage, {}});
    for (const recorder::Outside::Tensor& held : tensor.tensors) {
      const at::Tensor object(held.object.lock());
      live::Hooks hooks;
      if (object.defined()) hooks = live::hooks_of(*object.unsafeGetTensorImpl());
      known.objects.push_back({&recording->tensors[held.id], held.object, std::move(hooks),
                               object.defined() && object.requires_grad()});
    }
  }
  auto guards = std::make_unique<guards::GuardSet>(*recording, executor->bound(),
                                                   executor->written_buffers(), session.objects,
                                                   session.objects.snapshot(), std::move(outside));
  auto outputs = std::make_unique<StepOutputs>(*recording, *executor, *guards, recorded);
  const bool trusted = !session.options.verify.first;
  replayer::NumberProofs number_proofs(*recording);
  if (trusted) recording->status = trace::Status::kTrusted;
  return std::make_unique<Variant>(Variant{.number = number,
                                           .recording = std::move(recording),
                                           .executor = std::move(executor),
                                           .guards = std::move(guards),
                                           .outputs = std::move(outputs),
                                           .audits = audits_of(session.options, number),
                                           .number_proofs = std::move(number_proofs),
                                           .trusted = trusted,
                                           .plan_us = watch.us()});
}

bool AuditSchedule::draw() {
  if (rate_ <= 0) return false;
  probability_ = std::max(probability_ / 2, std::min(rate_, 1.0));
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability_;
}

}  // namespace steptape::session
