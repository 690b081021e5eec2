#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <span>
#include <vector>

#include "replayer/runtime/call.h"
#include "replayer/runtime/imposed.h"
#include "replayer/runtime/memory.h"
#include "steptape/stats.h"

namespace steptape::replayer {

/// What one run is asked to tell of itself, and to take over from another.
class RunLog {
 public:
  using Digests = std::vector<std::optional<trace::Digest>>;

  /// Both are the asker's, and must outlive the run.
  void ask_for(Digests& digests) { digests_ = &digests; }
  /// Along with digests.
  void impose(std::span<Imposed> imposed) { imposed_ = imposed; }
  void ask_for(std::vector<StageTime>& times) { times_ = &times; }
  bool is_asked() const { return digests_ != nullptr || times_ != nullptr; }
  bool wants_digests() const { return digests_ != nullptr; }
  bool wants_times() const { return times_ != nullptr; }
  /// The run is over.
  void end() { *this = {}; }

  /// The calls of a stage were done, and what they left has not been taken over; `stack` is what
  /// the last of them left, where the dispatcher did it.
  void add_digests(std::span<const Call> stage, const Memory& memory, torch::jit::Stack& stack);
  void add_time(std::span<const Call> stage, std::uint64_t ns);

 private:
  void add_digest(const Call& call, const torch::jit::Stack& stack);
  void impose_on(const Call& call, const torch::jit::Stack& stack);

  std::span<Imposed> imposed_;
  Digests* digests_ = nullptr;
  std::vector<StageTime>* times_ = nullptr;
};

/// Why no kernel does the call, by operator: "aten::mm: no kernel for this operator"; empty: one
/// does.
std::string reason_of(const Call& call);

}  // namespace steptape::replayer
