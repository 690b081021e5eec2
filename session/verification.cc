#include "session/verification.h"

#include <new>

#include "live/tensors.h"
#include "replayer/cpu/undo.h"

namespace steptape::session {
namespace {

/// What one way of running the step left behind.
struct Left {
  std::vector<std::optional<trace::Digest>> results;
  std::vector<trace::Digest> written;
  std::vector<std::optional<trace::Digest>> gradients;
  std::vector<trace::Digest> generators;
};

/// Bits and geometry in one digest: equal bytes in another shape are another result.
std::optional<trace::Digest> digest_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  if (live::unplannable_kind(tensor)) return trace::Digest{};
  trace::Digest digest = live::digest_of(tensor);
  std::uint64_t shape = static_cast<std::uint64_t>(tensor.scalar_type()) + 1;
  for (const std::int64_t size : tensor.sizes())
    shape = shape * 1000003 + static_cast<std::uint64_t>(size);
  digest.high ^= shape;
  return digest;
}

class Verification {
 public:
  Verification(Variant& variant, std::span<void* const> memory)
      : variant_(variant),
        recording_(*variant.recording),
        executor_(*variant.executor),
        memory_(memory) {
    for (const std::size_t position : executor_.written()) {
      const trace::BufferId id = executor_.bound()[position];
      regions_.push_back({memory[position], recording_.buffers[id].bytes});
      // the eager step may drop a gradient that the plan wrote in place
      if (recording_.buffers[id].role == trace::Role::kGradient) {
        kept_.push_back(variant_.guards->tracked().live_tensor(id).storage());
      }
    }
  }

  Verified run(const std::function<std::vector<at::Tensor>()>& eager) {
    Verified verified;
    std::optional<Left> planned;
    try {
      undo_.take(regions_, generators());
    } catch (const std::bad_alloc&) {
      verified.skipped = true;
      verified.results = eager();
      return verified;
    }
    try {
      planned = left_by_plan();
    } catch (const std::exception& error) {
      verified.failure = error.what();
    }
    undo_.restore();
    verified.results = eager();
    if (planned) verified.divergence = compare(*planned, left_by_eager(verified.results));
    return verified;
  }

 private:
  std::span<const at::Generator> generators() const {
    return executor_.draws_random() ? std::span<const at::Generator>(executor_.generators())
                                    : std::span<const at::Generator>();
  }

  void look_at_memory(Left& left) const {
    for (const replayer::cpu::Region& region : regions_) {
      left.written.push_back(
          trace::digest_of({static_cast<const std::byte*>(region.address), region.bytes}));
    }
    for (const at::Generator& generator : generators()) {
      const at::Tensor state = replayer::cpu::state_of(generator);
      left.generators.push_back(live::digest_of(state));
    }
  }

  bool is_bound(trace::TensorId id) const {
    if (id == trace::kNoTensor) return false;
    const auto placement = executor_.program().buffers[recording_.tensors[id].buffer].placement;
    return placement == replayer::Placement::kBound;
  }

  Left left_by_plan() {
    Left left;
    const replayer::cpu::Outcome outcome = executor_.run(memory_);
    for (const at::Tensor& result : outcome.results) left.results.push_back(digest_of(result));
    for (const at::Tensor& gradient : outcome.gradients)
      left.gradients.push_back(digest_of(gradient));
    look_at_memory(left);
    return left;
  }

  Left left_by_eager(const std::vector<at::Tensor>& results) const {
    Left left;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool bound = i < recording_.results.size() && is_bound(recording_.results[i]);
      left.results.push_back(bound ? std::nullopt : digest_of(results[i]));
    }
    for (const trace::ExitGradient& gradient : recording_.exit_gradients) {
      const at::Tensor parameter = variant_.guards->tracked().parameter(gradient.parameter);
      // a gradient that lies in memory it was given is compared with what was written
      left.gradients.push_back(is_bound(gradient.tensor) ? std::nullopt
                                                         : digest_of(parameter.grad()));
    }
    look_at_memory(left);
    return left;
  }

  static std::string text(const std::optional<trace::Digest>& digest) {
    return digest ? text_of(*digest) : "undefined";
  }

  std::optional<Divergence> compare(const Left& plan, const Left& eager) const {
    const auto differ = [](std::string path, const auto& a, const auto& b) {
      return Divergence{std::move(path), "plan " + text(a) + ", eager " + text(b)};
    };
    if (plan.results.size() != eager.results.size()) {
      return Divergence{"results.size", "plan " + std::to_string(plan.results.size()) + ", eager " +
                                            std::to_string(eager.results.size())};
    }
    for (std::size_t i = 0; i < plan.results.size(); ++i) {
      if (plan.results[i] != eager.results[i]) {
        return differ("results[" + std::to_string(i) + "]", plan.results[i], eager.results[i]);
      }
    }
    for (std::size_t i = 0; i < plan.gradients.size(); ++i) {
      if (plan.gradients[i] != eager.gradients[i]) {
        return differ(recording_.exit_gradients[i].parameter + ".grad", plan.gradients[i],
                      eager.gradients[i]);
      }
    }
    for (std::size_t i = 0; i < plan.written.size(); ++i) {
      if (plan.written[i] == eager.written[i]) continue;
      const trace::BufferId id = executor_.bound()[executor_.written()[i]];
      return differ(recording_.buffers[id].path, std::optional(plan.written[i]),
                    std::optional(eager.written[i]));
    }
    for (std::size_t i = 0; i < plan.generators.size(); ++i) {
      if (plan.generators[i] == eager.generators[i]) continue;
      return differ("generator[" + std::to_string(i) + "]", std::optional(plan.generators[i]),
                    std::optional(eager.generators[i]));
    }
    return std::nullopt;
  }

  Variant& variant_;
  const trace::Recording& recording_;
  replayer::cpu::Executor& executor_;
  std::span<void* const> memory_;
  std::vector<replayer::cpu::Region> regions_;
  std::vector<c10::Storage> kept_;
  replayer::cpu::Undo undo_;
};

}  // namespace

Verified verify(Variant& variant, std::span<void* const> memory,
                const std::function<std::vector<at::Tensor>()>& eager) {
  return Verification(variant, memory).run(eager);
}

}  // namespace steptape::session
