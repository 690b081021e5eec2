#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "steptape/error.h"
#include "trace/numbers.h"
#include "trace/validate.h"

namespace steptape::trace {
namespace {

/// The checks of one recording, in the order in which the later ones rely on the earlier.
class Checker {
 public:
  Checker(const Recording& recording, KnownDigests& digests)
      : recording_(recording), digests_(digests) {}

  void check(const Place& place) const {
    if (name_of(recording_.standing) == "unknown") {
      place.fail(fmt::format("standing {} is none that exists",
                             static_cast<unsigned>(recording_.standing)));
    }
    check_all_or_none(recording_.op_digests.size(), "digests", place);
    check_all_or_none(recording_.op_ns.size(), "times", place);
    check_each(*this, recording_.operators, place, "operator", &Checker::check_operator);
    check_each(*this, recording_.buffers, place, "buffer", &Checker::check_buffer);
    check_each(*this, recording_.tensors, place, "tensor", &Checker::check_tensor);
    check_each(*this, recording_.ops, place, "op", &Checker::check_op);
    check_each(*this, recording_.seeks, place, "seek", &Checker::check_seek);
    check_each(*this, recording_.generators, place, "generator", &Checker::check_generator);
    check_each(*this, recording_.inputs, place, "step input", &Checker::check_input);
    check_each(*this, recording_.results, place, "result", &Checker::check_tensor_or_none);
    check_each(*this, recording_.tracked, place, "tracked tensor", &Checker::check_tracked);
    check_each(*this, recording_.exit_gradients, place, "exit gradient",
               &Checker::check_exit_gradient);
    check_each(*this, recording_.modules, place, "module", &Checker::check_module);
    check_each(*this, recording_.module_access, place, "module access", &Checker::check_access);
    check_each(*this, recording_.optimizers, place, "optimizer", &Checker::check_optimizer);
    check_each(*this, recording_.refusals, place, "refusal", &Checker::check_refusal);
    check_tracked_paths(place);
  }

 private:
  void check_all_or_none(std::size_t count, std::string_view what, const Place& place) const {
    if (count == 0 || count == recording_.ops.size()) return;
    place.fail(fmt::format("{} ops have {}, but there are {}", count, what, recording_.ops.size()));
  }
  void check_op_or_end(std::size_t op, const Place& place) const {
    if (op != recording_.ops.size()) check_index(op, recording_.ops.size(), "op", place);
  }
  static void check_optional(Index index, std::size_t count, std::string_view what,
                             const Place& place) {
    if (index != kNone) check_index(index, count, what, place);
  }
  static void check_device(const Device& device, const Place& place) {
    const auto kind = static_cast<unsigned>(device.kind);
    if (kind < 1 || kind > static_cast<unsigned>(DeviceKind::kOther)) {
      place.fail(fmt::format("device kind {} is none that exists", kind));
    }
    if (device.index < 0) place.fail(fmt::format("device index {} is negative", device.index));
  }

  void check_operator(const Operator& op, const Place& place) const {
    if (op.name.empty()) place.fail("has no name");
  }
  void check_buffer(const Buffer& buffer, const Place& place) const;
  void check_content(const Buffer& buffer, const Place& place) const;
  void check_tensor(const Tensor& tensor, const Place& place) const;
  void check_value(const Value& value, const Place& place) const { check_value(value, place, 0); }
  void check_value(const Value& value, const Place& place, int depth) const;
  void check_tensor_or_none(const TensorId& id, const Place& place) const {
    if (id != kNoTensor) check_index(id, recording_.tensors.size(), "tensor", place);
  }
  void check_written(const TensorId& id, const Place& place) const {
    check_index(id, recording_.tensors.size(), "tensor", place);
  }
  void check_op(const Op& op, const Place& place) const;
  void check_generator(const GeneratorState& generator, const Place& place) const {
    if (generator.path.empty()) place.fail("has no path");
    if (generator.content) check_digest(generator.content, generator.digest, "generator", place);
  }
  void check_digest(const Blob& content, const Digest& digest, std::string_view whose,
                    const Place& place) const {
    const Digest& found = digests_.of(content);
    if (found == digest) return;
    place.fail(fmt::format("content has digest {}, but the {}'s is {}", text_of(found), whose,
                           text_of(digest)));
  }
  void check_seek(const Seek& seek, const Place& place) const {
    check_op_or_end(seek.before_op, place);
    check_optional(seek.after_op, recording_.ops.size(), "op", place);
  }
  void check_input(const Input& input, const Place& place) const;
  void check_tracked(const Tracked& tracked, const Place& place) const;
  void check_tracked_paths(const Place& place) const;
  void check_exit_gradient(const ExitGradient& gradient, const Place& place) const {
    check_tensor_or_none(gradient.tensor, place);
  }
  void check_module(const Module& module, const Place& place) const {
    check_each(*this, module.options, place, "option", &Checker::check_hyperparameter);
  }
  void check_access(const ModuleAccess& access, const Place& place) const {
    check_index(access.module, recording_.modules.size(), "module", place);
    check_index(access.first_op, recording_.ops.size(), "op", place);
    if (access.call == 0) place.fail("call 0, but calls are counted from 1");
  }
  void check_hyperparameter(const NamedValue& named, const Place& place) const {
    check_value(named.value, place);
  }
  void check_group(const ParameterGroup& group, const Place& place) const {
    check_each(*this, group.hyperparameters, place, "hyperparameter",
               &Checker::check_hyperparameter);
  }
  void check_state(const OptimizerStateEntry& entry, const Place& place) const {
    check_value(entry.value, place);
  }
  void check_optimizer(const OptimizerLayout& optimizer, const Place& place) const {
    check_each(*this, optimizer.groups, place, "group", &Checker::check_group);
    check_each(*this, optimizer.state, place, "state", &Checker::check_state);
  }
  void check_refusal(const Refusal& refusal, const Place& place) const;

  const Recording& recording_;
  KnownDigests& digests_;
};

void Checker::check_buffer(const Buffer& buffer, const Place& place) const {
  check_device(buffer.device, place);
  if (name_of(buffer.role) == "unknown") {
    place.fail(fmt::format("role {} is none that exists", static_cast<unsigned>(buffer.role)));
  }
  if (buffer.address_mod_64 >= 64) {
    place.fail(fmt::format("address remainder {}, but it is below 64", buffer.address_mod_64));
  }
  if (buffer.bytes > static_cast<std::uint64_t>(INT64_MAX)) {
    place.fail(fmt::format("{} bytes, more than any memory holds", buffer.bytes));
  }
  if (buffer.content) check_content(buffer, place);
}

void Checker::check_content(const Buffer& buffer, const Place& place) const {
  if (buffer.content->size() != buffer.bytes) {
    place.fail(fmt::format("content of {} bytes, but the buffer has {}", buffer.content->size(),
                           buffer.bytes));
  }
  if (buffer.digest) check_digest(buffer.content, *buffer.digest, "buffer", place);
}

void Checker::check_tensor(const Tensor& tensor, const Place& place) const {
  check_index(tensor.buffer, recording_.buffers.size(), "buffer", place);
  const auto dtype = static_cast<unsigned>(tensor.dtype);
  if (!is_dtype(dtype)) place.fail(fmt::format("dtype {} is none that exists", dtype));
  if (tensor.offset < 0) place.fail(fmt::format("offset {} is negative", tensor.offset));
  std::uint64_t end = 0;
  try {
    end = tensor.byte_range().second;
  } catch (const Error& error) {
    place.fail(error.what());
  }
  for (std::int64_t size : tensor.sizes) {
    if (size < 0) place.fail(fmt::format("size {} is negative", size));
  }
  if (tensor.numel() == INT64_MAX) place.fail("the number of elements overflows");
  const std::uint64_t bytes = recording_.buffers[tensor.buffer].bytes;
  if (end > bytes) {
    place.fail(
        fmt::format("ends at byte {} of buffer {}, which has {}", end, tensor.buffer, bytes));
  }
}

void Checker::check_value(const Value& value, const Place& place, int depth) const {
  if (depth > kMaxValueDepth) {
    place.fail(fmt::format("lists lie more than {} deep in lists", kMaxValueDepth));
  }
  if (const auto* tensor = std::get_if<TensorRef>(&value.data)) {
    check_tensor_or_none(tensor->id, place);
  } else if (const auto* device = std::get_if<Device>(&value.data)) {
    check_device(*device, place);
  } else if (const auto* list = std::get_if<List>(&value.data)) {
    for (const Value& item : *list) check_value(item, place, depth + 1);
  }
}

void Checker::check_op(const Op& op, const Place& place) const {
  check_index(op.op, recording_.operators.size(), "operator", place);
  check_each(*this, op.inputs, place, "input", &Checker::check_value);
  check_each(*this, op.outputs, place, "output", &Checker::check_value);
  check_each(*this, op.unannotated_writes, place, "unannotated write", &Checker::check_written);
  check_optional(op.module, recording_.modules.size(), "module", place);
  if (op.call == 0 && op.module != kNone) place.fail("call 0, but calls are counted from 1");
  check_optional(op.scope, recording_.scopes.size(), "scope", place);
  if (op.phase != Phase::kForward && op.phase != Phase::kBackward) {
    place.fail(fmt::format("phase {} is none that exists", static_cast<unsigned>(op.phase)));
  }
  if (op.sequence < -1) place.fail(fmt::format("sequence number {} is negative", op.sequence));
}

void Checker::check_input(const Input& input, const Place& place) const {
  check_value(input.value, place);
  if (input.range && input.range->first > input.range->second) {
    place.fail(fmt::format("its range starts at {} and ends at {}", input.range->first,
                           input.range->second));
  }
  if (!input.same_as.empty() && find_input(recording_, input.same_as) == kNone &&
      std::ranges::find(recording_.tracked, input.same_as, &Tracked::path) ==
          recording_.tracked.end()) {
    place.fail(fmt::format("it is `{}`, which is neither an input nor tracked", input.same_as));
  }
}

void Checker::check_tracked(const Tracked& tracked, const Place& place) const {
  if (name_of(tracked.role) == "unknown") {
    place.fail(fmt::format("role {} is none that exists", static_cast<unsigned>(tracked.role)));
  }
  if (tracked.tensor == kNoTensor && tracked.role != Role::kGradient) {
    place.fail(fmt::format("`{}` is undefined, which only a gradient may be", tracked.path));
  }
  check_tensor_or_none(tracked.tensor, place);
}

void Checker::check_tracked_paths(const Place& place) const {
  std::unordered_set<std::string_view> paths;
  for (std::size_t i = 0; i < recording_.tracked.size(); ++i) {
    const std::string& path = recording_.tracked[i].path;
    if (!paths.insert(path).second) {
      Place(place, "tracked tensor", i).fail(fmt::format("`{}` is tracked twice", path));
    }
  }
}

void Checker::check_refusal(const Refusal& refusal, const Place& place) const {
  if (name_of(refusal.code) == "unknown") {
    place.fail(fmt::format("code {} is none that exists", static_cast<unsigned>(refusal.code)));
  }
  if (refusal.op_index < -1) place.fail(fmt::format("op {} is negative", refusal.op_index));
  if (refusal.op_index >= 0) {
    check_op_or_end(static_cast<std::size_t>(refusal.op_index), place);
  }
}

}  // namespace

void validate_recording(const Recording& recording, const Place& place, KnownDigests& digests) {
  Checker(recording, digests).check(place);
  validate_numbers(recording, place);
}

}  // namespace steptape::trace
