#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "steptape/error.h"
#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape {

/// What a step of a trace takes or gives.
struct TensorSpec {
  std::string path;   ///< "inputs[0]", "model.fc1.weight"
  std::string dtype;  ///< "float32"
  std::vector<std::int64_t> sizes;
  /// Of integral inputs: the range seen while recording; low > high when none was.
  std::int64_t low = 1, high = 0;
};

enum class Environment {
  kExact,  ///< refuse a trace recorded with another torch, CPU capability, BLAS or thread count
  kAny,    ///< accept it: results may differ in their last bits
};

struct LoadOptions {
  Environment environment = Environment::kExact;
};

/// A step that a trace holds, with the state of its Player. Valid while the player lives.
class PlayerStep {
 public:
  /// Runs the step: state moves on by one step, the results are returned. Throws Error
  /// (failed_precondition) with the verdict when a guard does not hold; every byte of state is then
  /// as it was, as it is when an op throws. A step that was recorded with Session::update steps the
  /// optimizer behind it; what that one throws comes when the step itself has run.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);
  /// The same, and what each part of it took, which makes it a little slower; steps of optimizers
  /// behind it not among them.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, std::vector<StageTime>& times);
  /// The call of the program whose recording the last `run` replayed, counted from 1; 0: no run
  /// yet.
  std::uint64_t recorded_call() const;
  /// The numbers that the step returned in the last `run`.
  const std::vector<double>& numbers() const;
  /// The same for a step with exactly one result.
  template <typename... Tensors>
  at::Tensor operator()(const Tensors&... inputs) {
    return single(run({inputs...}));
  }
  /// Whether `run` would hold for these inputs, and what stands against it.
  Verdict check(const std::vector<at::Tensor>& inputs) const;

  const std::string& name() const;
  /// Of the first variant; host values a step was recorded with are fixed and not listed.
  std::vector<TensorSpec> inputs() const;
  std::vector<TensorSpec> results() const;
  std::vector<PlanStats> variants() const;
  /// What a switch around the step was set to while recording ("threads", "default_dtype", ...),
  /// which `run` needs it to be; empty when the trace does not say.
  std::string ambient(const std::string& name) const;

  /// How the results stood in what the step returned, as the front end of another language wrote
  /// it:
  /// "(tensor, {'loss': float})". Empty for a step of C++.
  std::string structure() const;

  struct Impl;

 private:
  friend class Player;
  explicit PlayerStep(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  static at::Tensor single(std::vector<at::Tensor> results);
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, std::vector<StageTime>* times);
  std::shared_ptr<Impl> impl_;
};

/// A trace opened for replay in a process that holds no model code: it owns parameters, module
/// buffers, optimizer state and generators, filled from the trace. Not thread-safe; two players are
/// independent.
class Player {
 public:
  Player(Player&&) noexcept;
  Player& operator=(Player&&) noexcept;
  ~Player();

  std::vector<std::string> steps() const;
  /// Throws Error (invalid_argument) that lists the steps there are when none has this name.
  PlayerStep step(const std::string& name);
  /// Parameters, module buffers and optimizer state by path. The tensors share the player's memory.
  std::vector<TensorSpec> state() const;
  at::Tensor tensor(const std::string& path) const;
  /// Hyperparameters, step counters and declared values that can be set:
  /// "optimizer.param_groups[0].lr", "optimizer.state[model.fc1.weight].step", "tau".
  std::vector<std::string> scalars() const;
  double scalar(const std::string& path) const;
  /// For the steps from now on. Throws Error (invalid_argument) when there is no such number. A
  /// value that no variant of a step was recorded for makes that step throw its verdict.
  void set(const std::string& path, double value);
  /// Writes the trace with the state as it is now, atomically. Throws Error (io).
  void save(const std::string& path) const;

 private:
  friend Player load(const std::string& path, const LoadOptions& options);
  struct Impl;
  explicit Player(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Opens a trace. Throws Error: (io) no such file; (data_loss) the file is damaged or no trace;
/// (unsupported) an op does not exist in this torch or has another schema, the environment differs,
/// or the trace was saved without state; all reasons at once.
Player load(const std::string& path, const LoadOptions& options = {});

}  // namespace steptape
