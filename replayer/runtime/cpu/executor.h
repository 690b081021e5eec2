#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "replayer/planner/passes/passes.h"
#include "replayer/planner/program.h"
#include "replayer/runtime/executor.h"

namespace steptape::replayer::cpu {

/// replayer::plan for the kernels of the CPU.
Program plan(std::shared_ptr<const trace::Recording> recording, const PassOptions& options = {});

/// A program ready to run on the CPU: prepared arguments, one arena, the plan's own tensors. Runs
/// on the calling thread.
class Executor final : public replayer::Executor {
 public:
  /// Allocates the arena and the constants. Throws c10::Error or std::bad_alloc when memory is
  /// short, Error (data_loss) when a value does not fit its operator.
  Executor(Program program, const GeneratorOf& generator);
  ~Executor() override;

  const std::vector<trace::BufferId>& bound() const override;
  const std::vector<std::size_t>& written() const override;
  bool draws_random() const override;
  void adapt_to(std::span<void* const> memory) override;
  const std::vector<at::Generator>& generators() const override;
  Outcome run(const Run& run) override;
  void run_into(const Run& run, std::span<const at::Tensor> results,
                std::vector<double>& numbers) override;
  bool set_apart(std::span<const trace::Index> ops) override;
  const Program& program() const override;
  PlanStats stats() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace steptape::replayer::cpu
