#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "recorder/intercept/interceptor.h"
#include "recorder/recorder.h"
#include "recorder/repeats.h"
#include "trace/digest.h"

namespace steptape::recorder {

/// One op that ran, and what it left: its results and the arguments it wrote.
struct OpDigest {
  std::string op;  ///< "aten::add_.Tensor"
  trace::Digest digest;
};

/// Runs `step` and writes down what each op left, in the order in which ops started. Like `record`,
/// it adds no op and keeps nothing alive; unlike it, it knows nothing about the step. The ops of
/// `repeats` are run again.
Returned run_with_digests(const StepFunction& step, Interceptor& interceptor,
                          std::vector<OpDigest>& digests, std::span<Repeat> repeats = {});

}  // namespace steptape::recorder
