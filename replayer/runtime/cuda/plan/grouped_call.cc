#include "replayer/runtime/cuda/plan/grouped_call.h"

#include <bit>
#include <cstdint>
#include <utility>

#include "live/operators.h"
#include "replayer/runtime/cuda/plan/agreement.h"

namespace steptape::replayer::cuda {
namespace {

bool same_number(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt() || b.isInt()) return a.isInt() && b.isInt() && a.toInt() == b.toInt();
  return std::bit_cast<std::uint64_t>(a.toDouble()) == std::bit_cast<std::uint64_t>(b.toDouble());
}

}  // namespace

GroupedCall::GroupedCall(const Group& group, std::vector<const Call*> members)
    : ops_(group.ops),
      members_(std::move(members)),
      call_{.callee = *live::find_operator({group.by->name, group.by->overload, ""})},
      dtype_(members_[0]->arguments[group.by->arguments[0].from].toTensor().scalar_type()) {
  call_.op = ops_.front();
  for (const ForeachArgument& argument : group.by->arguments) {
    const c10::IValue& first = members_[0]->arguments[argument.from];
    if (argument.kind == ForeachArgument::Kind::kEach) {
      c10::List<at::Tensor> list;
      for (const Call* member : members_)
        list.push_back(member->arguments[argument.from].toTensor());
      call_.arguments.emplace_back(std::move(list));
    } else if (argument.is_number()) {
      numbers_.push_back({call_.arguments.size(), argument});
      call_.arguments.push_back(foreach_number(first, argument.kind, dtype_));
    } else {
      call_.arguments.push_back(first);
    }
  }
  add_defaults(call_.callee.schema(), call_.arguments);
}

bool GroupedCall::take_numbers() {
  std::vector<c10::IValue> taken;
  for (const Number& number : numbers_) {
    const auto of = [&](const Call& member) {
      return foreach_number(member.arguments[number.from.from], number.from.kind, dtype_);
    };
    taken.push_back(of(*members_[0]));
    for (const Call* member : members_) {
      if (!same_number(of(*member), taken.back())) return false;
    }
  }
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    call_.arguments[numbers_[i].argument] = std::move(taken[i]);
  }
  return true;
}

std::vector<torch::jit::Stack> GroupedCall::split(const torch::jit::Stack& stack) const {
  std::vector<torch::jit::Stack> results(members_.size());
  if (stack.empty()) return results;
  const std::vector<at::Tensor> made = stack.back().toTensorVector();
  for (std::size_t i = 0; i < results.size() && i < made.size(); ++i) results[i] = {made[i]};
  return results;
}

}  // namespace steptape::replayer::cuda
