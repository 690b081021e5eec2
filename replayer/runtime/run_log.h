#pragma once

#include <ATen/core/stack.h>

#include <span>
#include <utility>

#include "replayer/runtime/call.h"
#include "replayer/runtime/memory.h"
#include "replayer/runtime/run.h"

namespace steptape::replayer {

/// Keeps what is looked at in a run.
class RunLog {
 public:
  /// Begins a run of so many ops, which `end` ends.
  void begin(const Inspection& inspection, std::size_t ops);
  void end() { inspection_ = {}; }
  bool wants_digests() const { return inspection_.digests != nullptr; }
  bool wants_times() const { return inspection_.times != nullptr; }
  bool is_compared() const { return inspection_.is_compared; }

  /// The calls of a stage were done, and what they left has not been taken over; `stack` is what
  /// the last of them left, where the dispatcher did it.
  void add_digests(std::span<const Call> stage, const Memory& memory, torch::jit::Stack& stack);
  void add_time(std::span<const Call> stage, std::uint64_t ns);
  void add_time(StageTime time) { inspection_.times->push_back(std::move(time)); }

 private:
  void add_digest(const Call& call, const torch::jit::Stack& stack);
  void override_outputs(const Call& call, const torch::jit::Stack& stack);

  Inspection inspection_;
};

/// Why no kernel does the call, by operator: "aten::mm: no kernel for this operator"; empty: one
/// does.
std::string reason_of(const Call& call);

}  // namespace steptape::replayer
