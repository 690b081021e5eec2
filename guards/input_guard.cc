#include "guards/input_guard.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "guards/mismatch.h"
#include "guards/varying_numbers.h"
#include "live/fields.h"
#include "live/tensors.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::guards {

using enum GuardKind;

namespace {

/// "2", or "2 (x, self.hidden)" where inputs have names: a place of the program's that counts as an
/// argument is not a parameter of the step.
std::string counted(const std::vector<trace::Input>& inputs) {
  constexpr std::size_t kMost = 16;
  std::string names;
  bool are_named = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    are_named |= !inputs[i].path.starts_with("inputs[");
    if (i < kMost) names += (i == 0 ? "" : ", ") + inputs[i].path;
  }
  if (inputs.size() > kMost) names += ", …";
  return std::to_string(inputs.size()) + (are_named ? " (" + names + ")" : "");
}

}  // namespace

InputGuard::InputGuard(const trace::Recording& recording, std::vector<std::int64_t> position)
    : recording_(recording) {
  for (std::size_t i = 0; i < recording.inputs.size(); ++i) {
    const auto* input = std::get_if<trace::TensorRef>(&recording.inputs[i].value.data);
    if (input == nullptr) {
      facts_.push_back(
          {i, trace::find_leaf(recording, trace::LeafKind::kArgument, recording.inputs[i].path)});
      continue;
    }
    TensorInput tensor{i, nullptr, nullptr, at::kFloat, -1};
    if (input->id != trace::kNoTensor) {
      tensor.geometry = &recording.tensors[input->id];
      tensor.buffer = &recording.buffers[tensor.geometry->buffer];
      tensor.dtype = live::scalar_type_of(tensor.geometry->dtype);
      tensor.position = position[tensor.geometry->buffer];
    }
    tensors_.push_back(tensor);
    const std::string& same_as = recording.inputs[i].same_as;
    if (const trace::Index first = trace::find_input(recording, same_as); first != trace::kNone) {
      same_.push_back({i, first});
    } else if (tensor.geometry != nullptr) {
      apart_.push_back(i);
    }
  }
}

Verdict InputGuard::check(std::span<const live::Argument> arguments,
                          std::span<double> leaves) const {
  if (arguments.size() != recording_.inputs.size()) {
    return failed(kArgumentCount, "inputs.size", counted(recording_.inputs),
                  std::to_string(arguments.size()));
  }
  for (const TensorInput& input : tensors_) {
    const live::Argument& argument = arguments[input.argument];
    const std::string& path = recording_.inputs[input.argument].path;
    if (!argument.is_tensor)
      return failed(kPresence, path, "a tensor", trace::words_of(argument.fact));
    if (argument.tensor.defined() != (input.geometry != nullptr)) {
      return failed(kPresence, path, input.geometry != nullptr ? "a tensor" : "undefined",
                    argument.tensor.defined() ? "a tensor" : "undefined");
    }
    if (input.geometry == nullptr) continue;
    if (Verdict verdict = check_tensor(input, argument.tensor); !verdict) return verdict;
  }
  if (Verdict verdict = check_same(arguments); !verdict) return verdict;
  for (const auto& [i, leaf] : facts_) {
    const trace::Input& expected = recording_.inputs[i];
    if (arguments[i].is_tensor)
      return failed(kPresence, expected.path, trace::words_of(expected.value), "a tensor");
    if (leaf != trace::kNone && may_follow(expected.value, arguments[i].fact)) {
      leaves[leaf] = trace::number_of(arguments[i].fact);
      continue;
    }
    if (arguments[i].fact != expected.value) {
      return failed(kArgument, expected.path, trace::words_of(expected.value),
                    trace::words_of(arguments[i].fact));
    }
  }
  return {};
}

Verdict InputGuard::check_same(std::span<const live::Argument> arguments) const {
  for (const Same& same : same_) {
    if (arguments[same.argument].tensor.is_same(arguments[same.first].tensor)) continue;
    return other_tensor(same.argument, recording_.inputs[same.first].path, "");
  }
  const auto tensor_at = [arguments](std::size_t argument) {
    return arguments[argument].tensor.unsafeGetTensorImpl();
  };
  if (apart_.size() < 2) return {};
  if (apart_.size() == 2) {
    if (tensor_at(apart_[0]) != tensor_at(apart_[1])) return {};
    return other_tensor(apart_[1], "", recording_.inputs[apart_[0]].path);
  }
  std::vector<std::size_t> order = apart_;
  std::ranges::stable_sort(order, {}, tensor_at);
  const auto twice = std::ranges::adjacent_find(order, {}, tensor_at);
  if (twice == order.end()) return {};
  return other_tensor(*std::next(twice), "", recording_.inputs[*twice].path);
}

Verdict InputGuard::check_tracked(std::span<const live::Argument> arguments,
                                  const TrackedGuard& tracked) const {
  for (const std::size_t i : apart_) {
    const std::string& expected = recording_.inputs[i].same_as;
    const std::string_view found = tracked.path_of(arguments[i].tensor);
    if (found != expected) return other_tensor(i, expected, found);
  }
  return {};
}

Verdict InputGuard::other_tensor(std::size_t input, std::string_view expected,
                                 std::string_view found) const {
  const auto in_words = [](std::string_view path, const char* none) {
    return path.empty() ? none : "the tensor " + std::string(path);
  };
  return failed(kArgument, recording_.inputs[input].path, in_words(expected, "a tensor of its own"),
                in_words(found, "another"));
}

Verdict InputGuard::check_tensor(const TensorInput& input, const at::Tensor& tensor) const {
  const trace::Input& expected = recording_.inputs[input.argument];
  // the quick test would call has_storage() on subclasses and sparse tensors: their kinds come
  // first
  const bool plain = is_on(tensor, input.buffer->device) && tensor.layout() == at::kStrided &&
                     !live::unplannable_kind(tensor).has_value();
  if (!plain || !has_geometry(tensor, *input.geometry, input.dtype)) {
    Verdict verdict =
        geometry_mismatch(expected.path, *input.geometry, input.buffer->device, tensor);
    return verdict ? failed(kTensorKind, expected.path, "a plain tensor", "another kind") : verdict;
  }
  if (tensor.requires_grad() != expected.requires_grad) {
    return failed_flag(kRequiresGrad, expected.path + ".requires_grad", expected.requires_grad);
  }
  if (live::gradient_type_of(tensor) != -1) {
    return failed(kRequiresGrad, expected.path + ".grad_dtype", "None", "set");
  }
  if (expected.may_have_grad() && tensor.is_leaf() && tensor.grad().defined()) {
    return failed(kPresence, expected.path + ".grad", "None", "defined");
  }
  if (tensor.is_inference() && !c10::InferenceMode::is_enabled()) {
    return failed_flag(kInference, expected.path + ".is_inference", false);
  }
  return {};
}

Verdict InputGuard::place(std::span<const live::Argument> arguments, std::span<void*> memory,
                          Remainders* remainders) const {
  for (const TensorInput& input : tensors_) {
    if (input.geometry == nullptr || input.position < 0) continue;
    Verdict verdict = place_tensor(input, arguments[input.argument].tensor, memory, remainders);
    if (!verdict) return verdict;
  }
  return {};
}

Verdict InputGuard::place_tensor(const TensorInput& input, const at::Tensor& tensor,
                                 std::span<void*> memory, Remainders* remainders) const {
  const trace::Input& expected = recording_.inputs[input.argument];
  if (live::is_lazily_shared(*tensor.storage().unsafeGetStorageImpl())) {
    return failed(kMemory, expected.path, "memory of its own", "that of a lazy clone");
  }
  const auto data = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  const std::uintptr_t first =
      data - static_cast<std::uintptr_t>(input.geometry->offset) * tensor.element_size();
  void*& slot = memory[static_cast<std::size_t>(input.position)];
  auto* address = reinterpret_cast<void*>(first);
  if (slot != nullptr && slot != address && input.buffer->bytes != 0) {
    return failed(kMemory, expected.path + ".data_ptr",
                  "within the memory of " + input.buffer->path, "elsewhere");
  }
  const bool is_noted = remainders != nullptr && input.buffer->bytes != 0 &&
                        input.buffer->device.kind == trace::DeviceKind::kCpu;
  if (is_noted) {
    remainders->note(input.argument, static_cast<std::uint8_t>(first % 64));
  } else if (Verdict verdict = alignment_mismatch(expected.path, *input.buffer, address);
             !verdict) {
    return verdict;
  }
  slot = address;
  return {};
}

bool Remainders::are_proved() const {
  if (newest_ < proved_.size() && proved_[newest_] == now_) return true;
  const auto found = std::ranges::find(proved_, now_);
  if (found == proved_.end()) return false;
  newest_ = static_cast<std::size_t>(found - proved_.begin());
  return true;
}

void Remainders::settle() {
  if (!are_proved()) proved_.push_back(now_);
}

}  // namespace steptape::guards
