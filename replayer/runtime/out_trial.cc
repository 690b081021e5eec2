#include "replayer/runtime/out_trial.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <cstddef>

#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer {
namespace {

/// Notices warnings. A variant that warns is given up: some resize what they are given and back,
/// and say so each time; what the recorded op has to say it says itself.
class Noticing final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override { has_warned = true; }
  bool has_warned = false;
};

at::Tensor like(const at::Tensor& placed) {
  return at::empty_strided(placed.sizes(), placed.strides(), placed.options());
}

bool is_as_given(const c10::IValue& found, const at::Tensor& given, const at::Tensor& placed,
                 std::size_t bytes) {
  return found.isTensor() && found.toTensor().is_same(given) && given.sizes() == placed.sizes() &&
         given.strides() == placed.strides() && given.storage_offset() == 0 &&
         given.scalar_type() == placed.scalar_type() && given.storage().nbytes() == bytes;
}

}  // namespace

bool try_out_variant(const Call& call, const std::vector<at::Tensor>& placed,
                     torch::jit::Stack& stack) {
  std::vector<at::Tensor> given;
  std::vector<std::size_t> bytes;
  put_arguments(call, stack);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    given.push_back(like(placed[i]));
    bytes.push_back(given.back().storage().nbytes());
    stack[stack.size() - placed.size() + i] = given.back();
  }
  Noticing noticing;
  try {
    const c10::WarningUtils::WarningHandlerGuard until_the_end(&noticing);
    call.callee.callBoxed(stack);
  } catch (const c10::Error&) {
    return false;
  }
  if (noticing.has_warned || stack.size() != placed.size()) return false;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (!is_as_given(stack[i], given[i], placed[i], bytes[i])) return false;
  }
  for (std::size_t i = 0; i < placed.size(); ++i) {
    copy_onto(given[i], placed[i]);
    stack[i] = placed[i];
  }
  return true;
}

void give_up_out_variant(Call& call, const c10::OperatorHandle& recorded) {
  call.callee = recorded;
  call.arguments.resize(call.arguments.size() - call.placed.size());
  call.copies = true;
}

}  // namespace steptape::replayer
