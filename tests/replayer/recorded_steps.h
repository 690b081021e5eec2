#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "recorder/recorder.h"
#include "replayer/runtime/cpu/executor.h"

namespace steptape::tests {

using StepBody = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// What the recorder writes down of `body` over `inputs`, with nothing tracked.
std::shared_ptr<trace::Recording> recorded(const StepBody& body,
                                           const std::vector<at::Tensor>& inputs);

/// Runs `executor` over `inputs`, which must be all that it is bound to.
std::vector<at::Tensor> run(replayer::Executor& executor, const std::vector<at::Tensor>& inputs,
                            const replayer::Inspection& inspection = {});

replayer::GeneratorOf default_generator();

/// Bodies that between them use every treatment and placement, by name.
struct NamedBody {
  std::string name;
  StepBody body;
  std::vector<at::Tensor> inputs;
};
std::vector<NamedBody> bodies();

bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace steptape::tests
