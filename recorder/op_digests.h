#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "live/collectives.h"
#include "recorder/intercept/interceptor.h"
#include "recorder/recorder.h"
#include "trace/digest.h"

namespace steptape::recorder {

/// An op of a step that is run again on the same inputs, to see whether it leaves the same bits.
struct Repeat {
  std::size_t op;                     ///< in the order in which ops start
  unsigned times;                     ///< this often,
  unsigned most;                      ///< and on, at most this often, until it leaves other bits
  bool differs = false;               ///< it left other bits
  double spread = 0;                  ///< see live::relative_difference; the largest of all repeats
  std::vector<at::Tensor> left = {};  ///< copies of what it left for the step
};

/// Runs one op of a step several times. What the step sees of it is its first run.
class RepeatedOp {
 public:
  /// The arguments of the op are on `stack`. Keeps a copy of the memory that it writes.
  RepeatedOp(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  ~RepeatedOp();
  RepeatedOp(const RepeatedOp&) = delete;
  RepeatedOp& operator=(const RepeatedOp&) = delete;

  /// The op has run and its returns are on the stack. `run` runs it again. An op that draws random
  /// numbers, asks the host or moves the memory it writes is not repeated.
  void repeat(const std::function<void()>& run, Repeat& asked);

 private:
  struct Written;

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<c10::IValue> arguments_;
  std::vector<at::Tensor> written_;
  std::unique_ptr<Written> before_;
};

/// One op that ran, and what it left: its results and the arguments it wrote.
struct OpDigest {
  std::string op;  ///< "aten::add_.Tensor"
  trace::Digest digest;
};

/// Runs `step` and writes down what each op left, in the order in which ops started. Like `record`,
/// it adds no op and keeps nothing alive; unlike it, it knows nothing about the step. The ops of
/// `repeats` are run again. Collectives go through `exchanges`.
Returned run_with_digests(const StepFunction& step, Interceptor& interceptor,
                          std::vector<OpDigest>& digests,
                          const std::shared_ptr<live::Exchanges>& exchanges,
                          std::span<Repeat> repeats = {});

/// Runs `step`, whose collectives are served what the call has issued before.
Returned run_served(const StepFunction& step, Interceptor& interceptor,
                    const std::shared_ptr<live::Exchanges>& exchanges);

}  // namespace steptape::recorder
