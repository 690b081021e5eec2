#pragma once

#include <memory>
#include <span>
#include <vector>

#include "replayer/runtime/backends.h"
#include "replayer/runtime/executor.h"

namespace steptape::replayer::cuda {

/// A program ready to run on a CUDA device, as graphs with what cannot be in them between. The
/// first run captures: it runs all once, op by op on a stream of its own, undoes that, captures,
/// and goes on as every run does. Digests of ops in graphs come from that run op by op, and so only
/// from a run that captures. Runs are given to the caller's current stream, and return when
/// the host has no more to do for them.
class Executor final : public replayer::Executor {
 public:
  /// Throws Error (unsupported) for what no plan on a device can hold, Error (data_loss) when a
  /// value does not fit its operator.
  Executor(std::shared_ptr<const trace::Recording> recording, const GeneratorOf& generator,
           const ExecutorOptions& options);
  ~Executor() override;

  const std::vector<trace::BufferId>& bound() const override;
  const std::vector<std::size_t>& written() const override;
  bool draws_random() const override;
  const std::vector<at::Generator>& generators() const override;
  void note_agreement() override;
  Outcome run(const Run& run) override;
  void run_into(const Run& run, std::span<const at::Tensor> results,
                std::vector<double>& numbers) override;
  void start_over() override;
  bool ungroup() override;
  bool set_apart(std::span<const trace::Index> ops) override;
  const Program& program() const override;
  PlanStats stats() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace steptape::replayer::cuda
