#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/number_proofs.h"
#include "replayer/runtime/run_log.h"
#include "replayer/runtime/undo.h"
#include "steptape/error.h"
#include "steptape/stats.h"

namespace steptape::replayer {

/// What a run gives beside what it wrote to bound memory.
struct Outcome {
  /// One for each of Recording::results. Undefined where the result is undefined, or where it lies
  /// in bound memory: the caller has the tensor it was given.
  std::vector<at::Tensor> results;
  /// One for each of Recording::numbers.
  std::vector<double> numbers;
  /// One for each of Recording::exit_gradients, in the same way.
  std::vector<at::Tensor> gradients;
};

/// A run threw where nothing should be able to, after a write of which no copy was taken: the
/// state may be half updated, and running the eager step on top of it would be wrong.
struct StateCorrupted : Error {
  explicit StateCorrupted(const std::string& message) : Error(ErrorCode::kInternal, message) {}
};

/// Finds a generator by the path a trace gives it; "default" is the CPU default generator.
using GeneratorOf = std::function<at::Generator(const std::string&)>;

/// A program bound to memory and ready to run on its device, by one of the backends. Bound memory
/// is given as addresses at each run and never kept alive. Not thread-safe.
class Executor {
 public:
  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Buffers whose memory each run is given, in this order.
  const std::vector<trace::BufferId>& bound() const { return bound_memory().buffers; }
  /// Bound buffers that a run writes, as positions in `bound()`.
  const std::vector<std::size_t>& written() const { return bound_memory().written; }
  /// The same as buffers.
  std::vector<trace::BufferId> written_buffers() const;
  bool draws_random() const { return bound_memory().draws_random; }
  /// The generators it may draw from: the default one, then others that ops name.
  virtual const std::vector<at::Generator>& generators() const = 0;

  /// What the last run left was compared with the eager step (Inspection::is_compared), and is the
  /// same: from here on any run may do what that one did.
  virtual void note_agreement() {}

  /// Inputs lie at other addresses, modulo 64, than the recorded ones or any that this was called
  /// for: finds out how the plan leaves there what the ops leave. `memory` as for a run.
  virtual void adapt_to(std::span<void* const>) {}

  /// Runs the plan. When an op throws, everything written so far and the generators are put back
  /// before the exception goes on; AssumptionViolated likewise. Throws StateCorrupted when that
  /// could not be done.
  virtual Outcome run(const Run& run) = 0;

  /// The same for a caller that has memory of its own for the first results, of their geometry, and
  /// `numbers` likewise; gradients go nowhere. Allocates nothing where the plan allocates nothing.
  virtual void run_into(const Run& run, std::span<const at::Tensor> results,
                        std::vector<double>& numbers) = 0;

  /// The next run is done as the first one was, from which digests are of all ops.
  virtual void start_over() {}
  /// From here on each op is done by itself, where several were done by one call of another
  /// operator. False where that was so already.
  virtual bool ungroup() { return false; }
  /// From here on these ops are done so that what they leave can be replaced. False where that
  /// cannot be: an op that no run does by itself, or that the first run alone does.
  virtual bool set_apart(std::span<const trace::Index> ops) = 0;

  virtual const Program& program() const = 0;
  /// What the plan is made of; times and counts of runs are the caller's to fill in.
  virtual PlanStats stats() const = 0;

 protected:
  virtual const Bound& bound_memory() const = 0;
};

}  // namespace steptape::replayer
