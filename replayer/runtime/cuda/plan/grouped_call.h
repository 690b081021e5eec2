#pragma once

#include <span>
#include <vector>

#include "replayer/runtime/call.h"
#include "replayer/runtime/cuda/plan/grouping.h"

namespace steptape::replayer::cuda {

/// Why a group cannot go on.
constexpr const char* kOtherNumbers = "ops that are done together take numbers that differ now";

/// The call of a `_foreach_` operator in the place of several calls.
class GroupedCall {
 public:
  /// `members` are the calls of the group's ops; they must outlive it.
  GroupedCall(const Group& group, std::vector<const Call*> members);

  const std::vector<trace::Index>& ops() const { return ops_; }
  std::span<const Call* const> members() const { return members_; }
  Call& call() { return call_; }
  const Call& call() const { return call_; }

  /// A number of the call.
  struct Number {
    std::size_t argument = 0;
    ForeachArgument from;  ///< where the members have it
  };
  const std::vector<Number>& numbers() const { return numbers_; }
  /// Takes the numbers that the members have now. False, with nothing taken, where they do not all
  /// have the same ones.
  bool take_numbers();
  /// What of the results on `stack`, which the call left there, each member would have left.
  std::vector<torch::jit::Stack> split(const torch::jit::Stack& stack) const;

 private:
  std::vector<trace::Index> ops_;
  std::vector<const Call*> members_;
  Call call_;
  std::vector<Number> numbers_;
  at::ScalarType dtype_;
};

}  // namespace steptape::replayer::cuda
