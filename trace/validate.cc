#include "trace/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <vector>

#include "steptape/error.h"
#include "trace/numbers.h"
#include "trace/windows.h"

namespace steptape::trace {
namespace {

void check_step_names(const Trace& trace, const Place& place) {
  std::unordered_set<std::string_view> names;
  for (const Step& step : trace.steps) {
    if (!names.insert(step.name).second) {
      Place(place, "step", step.name).fail("another step has the same name");
    }
  }
}

void check_state(const Trace& trace, const Place& place) {
  std::unordered_set<std::string_view> paths;
  for (std::size_t i = 0; i < trace.state.size(); ++i) {
    const Saved& saved = trace.state[i];
    const Place here(place, "saved state", i);
    if (saved.path.empty()) here.fail("has no path");
    if (!paths.insert(saved.path).second) {
      here.fail(fmt::format("`{}` was saved before", saved.path));
    }
    if (saved.address_mod_64 >= 64) {
      here.fail(fmt::format("address remainder {}, but it is below 64", saved.address_mod_64));
    }
    const bool has_number = is_number(saved.number);
    if (!has_number && !saved.content) here.fail(fmt::format("`{}` has no bytes", saved.path));
    if (has_number && saved.content) here.fail(fmt::format("`{}` has two values", saved.path));
  }
}

}  // namespace

std::string Place::text() const {
  std::string words = outer_ ? outer_->text() : std::string();
  if (word_.empty()) return words;
  if (!words.empty()) words += ", ";
  words += word_;
  if (has_index_) words += fmt::format(" {}", index_);
  if (!name_.empty()) words += fmt::format(" {}", name_);
  return words;
}

void Place::fail(std::string_view what) const {
  const std::string where = text();
  throw Error(ErrorCode::kDataLoss, fmt::format("{}{}{}", where, where.empty() ? "" : ": ", what));
}

void validate(const Recording& recording) {
  KnownDigests digests;
  validate_recording(recording, Place(), digests);
}

void validate(const Trace& trace) {
  const Place root;
  KnownDigests digests;
  check_step_names(trace, root);
  for (const Step& step : trace.steps) {
    const Place here(root, "step", step.name);
    for (std::size_t i = 0; i < step.recordings.size(); ++i) {
      validate_recording(step.recordings[i], Place(here, "recording", i), digests);
    }
  }
  check_state(trace, root);
}

namespace {

void check_index(std::size_t index, std::size_t count, std::string_view what, const Place& place) {
  if (index >= count) place.fail(fmt::format("{} {}, but there are {}", what, index, count));
}

void check_optional(Index index, std::size_t count, std::string_view what, const Place& place) {
  if (index != kNone) check_index(index, count, what, place);
}

/// Has `checker` look at each of `items`: "<place>, <word> 3".
template <typename Checker, typename Item>
void check_each(const Checker& checker, const std::vector<Item>& items, const Place& place,
                std::string_view word, void (Checker::*check)(const Item&, const Place&) const) {
  for (std::size_t i = 0; i < items.size(); ++i) (checker.*check)(items[i], {place, word, i});
}

/// The checks of one recording, in the order in which the later ones rely on the earlier.
class Checker {
 public:
  Checker(const Recording& recording, KnownDigests& digests)
      : recording_(recording), digests_(digests) {}

  void check(const Place& place) const {
    if (name_of(recording_.status) == "unknown") {
      place.fail(
          fmt::format("status {} is none that exists", static_cast<unsigned>(recording_.status)));
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
    if (!gradient.is_memory) return;
    const bool is_tracked = std::ranges::find(recording_.tracked, gradient.parameter,
                                              &Tracked::path) != recording_.tracked.end();
    if (is_tracked && gradient.tensor != kNoTensor) return;
    place.fail(fmt::format("`{}` is given memory, and is {}", gradient.parameter,
                           is_tracked ? "undefined" : "not tracked"));
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

/// Leaves, formulas and the places where they enter; the rest of the recording is valid.
class NumberChecker {
 public:
  explicit NumberChecker(const Recording& recording)
      : recording_(recording), elements_(recording) {}

  void check(const Place& place) const {
    check_each(*this, recording_.leaves, place, "leaf", &NumberChecker::check_leaf);
    check_each(*this, recording_.lookups, place, "lookup", &NumberChecker::check_lookup);
    check_each(*this, recording_.formulas, place, "formula", &NumberChecker::check_formula);
    check_each(*this, recording_.scalars, place, "scalar", &NumberChecker::check_site);
    check_each(*this, recording_.windows, place, "window", &NumberChecker::check_window);
    for (std::size_t i = 1; i < recording_.windows.size(); ++i) {
      if (recording_.windows[i].op <= recording_.windows[i - 1].op)
        Place(place, "window", i).fail("is out of order");
    }
    check_each(*this, recording_.proofs, place, "proof", &NumberChecker::check_proof);
    check_each(*this, recording_.predicates, place, "predicate", &NumberChecker::check_predicate);
    check_each(*this, recording_.reads, place, "host read", &NumberChecker::check_read);
    check_each(*this, recording_.numbers, place, "number", &NumberChecker::check_number);
    check_each(*this, recording_.held, place, "held place", &NumberChecker::check_held);
    check_each(*this, recording_.places, place, "place", &NumberChecker::check_place);
    check_each(*this, recording_.places, place, "place", &NumberChecker::check_carried);
    if (recording_.observed > recording_.results.size()) {
      place.fail(fmt::format("{} results are observed, but there are {}", recording_.observed,
                             recording_.results.size()));
    }
    for (std::size_t i = 1; i < recording_.reads.size(); ++i) {
      if (recording_.reads[i].op <= recording_.reads[i - 1].op) {
        Place(place, "host read", i).fail("is out of order");
      }
    }
  }

 private:
  void check_leaf(const Leaf& leaf, const Place& place) const {
    if (name_of(leaf.kind) == "unknown") {
      place.fail(fmt::format("kind {} is none that exists", static_cast<unsigned>(leaf.kind)));
    }
    if (leaf.path.empty()) place.fail("has no path");
  }

  void check_lookup(const Lookup& lookup, const Place& place) const {
    if (lookup.under.empty()) place.fail("is under no number");
    for (const Leaf& leaf : lookup.under) check_leaf(leaf, place);
  }

  void check_formula(const Formula& formula, const Place& place) const {
    if (!is_well_formed(formula, recording_.leaves.size())) place.fail("is not well formed");
  }

  void check_site(const ScalarSite& site, const Place& place) const {
    check_index(site.formula, recording_.formulas.size(), "formula", place);
    if (site.op == kNone) return check_content_site(site, place);
    check_index(site.op, recording_.ops.size(), "op", place);
    const Op& op = recording_.ops[site.op];
    check_index(site.argument, op.inputs.size(), "argument", place);
    const Value* value = &op.inputs[site.argument];
    if (site.item != kNone) {
      const auto* list = std::get_if<List>(&value->data);
      if (list == nullptr) place.fail(fmt::format("argument {} is not a list", site.argument));
      check_index(site.item, list->size(), "item", place);
      value = &(*list)[site.item];
    }
    if (!is_number(*value)) place.fail("stands where no number is");
  }

  void check_content_site(const ScalarSite& site, const Place& place) const {
    check_index(site.buffer, recording_.buffers.size(), "buffer", place);
    const Buffer& buffer = recording_.buffers[site.buffer];
    if (!buffer.content || buffer.role != Role::kConstant) {
      place.fail(fmt::format("buffer {} is not a constant whose bytes are kept", site.buffer));
    }
    const std::optional<Element> element = elements_.at(site);
    if (!element || element->bytes.empty()) {
      place.fail(fmt::format("buffer {} has no such element", site.buffer));
    }
    if (site.item == kNone && element->bytes.size() != buffer.bytes) {
      place.fail(fmt::format("buffer {} holds more than one element", site.buffer));
    }
  }

  /// A run computes where it lies from what is checked here alone.
  void check_window(const Window& window, const Place& place) const {
    check_index(window.op, recording_.ops.size(), "op", place);
    const Op& op = recording_.ops[window.op];
    const Tensor* base = op.inputs.empty() ? nullptr : recording_.find_tensor(op.inputs[0]);
    const Tensor* given = op.outputs.size() == 1 ? recording_.find_tensor(op.outputs[0]) : nullptr;
    if (!gives_windows(recording_.operator_of(op)) || base == nullptr || given == nullptr)
      place.fail(fmt::format("op {} neither selects nor slices", window.op));
    if (!can_give(recording_, op, *base, *given) || given->numel() == 0)
      place.fail(fmt::format("op {} gives another tensor than it is said to", window.op));
    if (given->buffer != window.buffer || base->buffer == window.buffer || given->offset != 0 ||
        recording_.buffers[window.buffer].bytes != given->byte_range().second ||
        recording_.buffers[window.buffer].role != Role::kInput ||
        recording_.buffers[window.buffer].device != recording_.buffers[base->buffer].device)
      place.fail(fmt::format("buffer {} is not what op {} gives", window.buffer, window.op));
    // that of another window is found before it
    const auto on = [](BufferId buffer) {
      return [buffer](const Window& each) { return each.buffer == buffer; };
    };
    const auto own = std::ranges::find(recording_.windows, window.op, &Window::op);
    if (std::any_of(std::next(own), recording_.windows.end(), on(base->buffer)) ||
        std::ranges::count_if(recording_.windows, on(window.buffer)) != 1 ||
        input_on(recording_, window.buffer) != kNone)
      place.fail(fmt::format("buffer {} is found elsewhere, too", window.buffer));
  }

  void check_proof(const Proof& proof, const Place& place) const {
    check_index(proof.formula, recording_.formulas.size(), "formula", place);
  }

  void check_predicate(const Predicate& predicate, const Place& place) const {
    check_index(predicate.formula, recording_.formulas.size(), "formula", place);
  }

  void check_read(const HostRead& read, const Place& place) const {
    check_index(read.op, recording_.ops.size(), "op", place);
    if (name_of(read.use) == "unknown") {
      place.fail(fmt::format("use {} is none that exists", static_cast<unsigned>(read.use)));
    }
    const Op& op = recording_.ops[read.op];
    if (op.outputs.size() != 1 || !is_number(op.outputs[0])) {
      place.fail(fmt::format("op {} gives no number", read.op));
    }
  }

  void check_number(const Number& number, const Place& place) const {
    if (!is_number(number.value)) place.fail("is not a number");
    check_optional(number.formula, recording_.formulas.size(), "formula", place);
    if (number.op == kNone) return;
    if (std::ranges::find(recording_.reads, number.op, &HostRead::op) == recording_.reads.end())
      place.fail(fmt::format("op {} is not a host read", number.op));
  }

  // NOLINTNEXTLINE(readability-convert-member-functions-to-static): as all that check_each calls
  void check_held(const HeldPlace& held, const Place& place) const {
    if (name_of(held.rule) == "unknown")
      place.fail(fmt::format("rule {} is none that exists", static_cast<unsigned>(held.rule)));
  }

  void check_place(const HeldInput& of, const Place& place) const {
    check_optional(of.place, recording_.held.size(), "place", place);
    if (of.input != kNone) {
      check_index(of.input, recording_.inputs.size(), "input", place);
      if (recording_.find_tensor(recording_.inputs[of.input].value) == nullptr)
        place.fail(fmt::format("input {} is not a tensor", of.input));
      if (place_of(recording_, of.input) != &of)
        place.fail(fmt::format("input {} is in two places", of.input));
    }
    check_optional(of.result, recording_.results.size(), "result", place);
    if (of.input == kNone && (of.result == kNone || recording_.results[of.result] == kNoTensor))
      place.fail("has no tensor");
  }

  /// The indices of all places are good.
  void check_carried(const HeldInput& of, const Place& place) const {
    if (of.is_carried && !can_be_carried(recording_, of))
      place.fail(
          of.result == kNone || of.input == kNone
              ? "cannot be carried on"
              : fmt::format("result {} cannot take the place of input {}", of.result, of.input));
  }

  const Recording& recording_;
  Elements elements_;
};

}  // namespace

void validate_recording(const Recording& recording, const Place& place, KnownDigests& digests) {
  Checker(recording, digests).check(place);
  NumberChecker(recording).check(place);
}

}  // namespace steptape::trace
