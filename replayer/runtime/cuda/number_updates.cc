#include "replayer/runtime/cuda/number_updates.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "live/tensors.h"
#include "replayer/runtime/tensor_on.h"
#include "trace/value.h"

namespace steptape::replayer::cuda {
namespace {

double value_of(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return value.toBool() ? 1 : 0;
  return static_cast<double>(value.toInt());
}

double element_of(const at::Tensor& tensor) {
  const auto dtype = live::dtype_of(tensor.scalar_type());
  return trace::number_of(
      trace::element_of(static_cast<const std::byte*>(tensor.const_data_ptr()), dtype));
}

double now(const Call& call, const CallNumber& number) {
  const c10::IValue& argument = call.arguments[number.argument];
  if (number.is_tensor) return element_of(argument.toTensor());
  return value_of(number.item ? argument.toListRef()[*number.item] : argument);
}

std::vector<double> now(const Call& call, const std::vector<CallNumber>& numbers) {
  std::vector<double> values;
  for (const CallNumber& number : numbers) values.push_back(now(call, number));
  return values;
}

/// Captures with all samples of an op's numbers, before it counts as unexplained.
constexpr int kMostRounds = 3;

constexpr const char* kInexact = "it takes an integer that no double holds exactly";

/// An integer whose neighbours a double tells apart.
bool is_exact(std::int64_t number) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  return number < kMost && number > -kMost;
}

bool is_exact(const Call& call, const CallNumber& number) {
  const c10::IValue& argument = call.arguments[number.argument];
  if (number.is_tensor) {
    const at::Tensor& tensor = argument.toTensor();
    return tensor.scalar_type() != at::kLong || is_exact(*tensor.const_data_ptr<std::int64_t>());
  }
  const c10::IValue value = number.item ? argument.toListRef()[*number.item] : argument;
  return !value.isInt() || is_exact(value.toInt());
}

bool are_exact(const Call& call, const std::vector<CallNumber>& numbers) {
  return std::ranges::all_of(numbers,
                             [&](const CallNumber& number) { return is_exact(call, number); });
}

bool are_there(const Call& call, const std::vector<CallNumber>& numbers) {
  return std::ranges::all_of(numbers, [&](const CallNumber& number) {
    return !number.is_tensor ||
           call.arguments[number.argument].toTensor().storage().data() != nullptr;
  });
}

bool same_bits(const std::vector<double>& some, const std::vector<double>& others) {
  return std::ranges::equal(some, others, [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  });
}

c10::IValue like(const c10::IValue& old, double value) {
  if (old.isInt()) return static_cast<std::int64_t>(value);
  return value;
}

bool is_same_launch(const KernelImage& some, const KernelImage& other) {
  return some.function == other.function && some.grid == other.grid && some.block == other.block &&
         some.shared_bytes == other.shared_bytes;
}

at::Tensor tensor_like(const at::Tensor& own, double value) {
  const trace::Tensor geometry = live::geometry_of(own, 0);
  const c10::Storage memory = allocate(own.nbytes(), 0);
  auto* bytes = static_cast<std::byte*>(memory.mutable_data());
  if (!trace::put_element(value, geometry.dtype, bytes))
    std::memcpy(bytes, own.const_data_ptr(), own.nbytes());
  trace::Tensor first = geometry;
  first.offset = 0;
  return tensor_on(memory, first);
}

std::vector<Domain> domains_of(const std::vector<CallNumber>& numbers) {
  std::vector<Domain> domains;
  for (const CallNumber& number : numbers) domains.push_back(number.domain);
  return domains;
}

bool is_plain_number(const c10::IValue& value) { return value.isDouble() || value.isInt(); }

}  // namespace

std::vector<CallNumber> numbers_of(const DevicePlan& plan, const Call& call) {
  const trace::Recording& recording = plan.recording();
  std::vector<CallNumber> numbers;
  std::set<trace::BufferId> varying;  // constants that a formula writes
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op == trace::kNone) {
      varying.insert(site.buffer);
    } else if (site.op == call.op) {
      const c10::IValue& argument = call.arguments[site.argument];
      CallNumber number{.argument = site.argument};
      if (site.item != trace::kNone) number.item = site.item;
      const c10::IValue value = number.item ? argument.toListRef()[*number.item] : argument;
      number.domain = value.isInt() ? Domain::kIntegral : Domain::kReal;
      number.can_vary = is_plain_number(value);
      numbers.push_back(number);
    }
  }
  const trace::Op& op = recording.ops[call.op];
  for (std::size_t a = 0; a < op.inputs.size(); ++a) {
    for_each_tensor(op.inputs[a], [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::Tensor& tensor = recording.tensors[id];
      if (recording.buffers[tensor.buffer].device.kind != trace::DeviceKind::kCpu) return;
      const Placement placement = plan.program.buffers[tensor.buffer].placement;
      // made by a graph: it lies on the device there
      if (placement == Placement::kCaptured || tensor.numel() == 0) return;
      if (placement == Placement::kConstant && !varying.contains(tensor.buffer)) return;
      CallNumber number{.argument = a, .is_tensor = true};
      const bool is_alone = call.arguments[a].isTensor() && tensor.numel() == 1;
      const auto type = live::scalar_type_of(tensor.dtype);
      number.domain = at::isIntegralType(type, false) ? Domain::kIntegral : Domain::kReal;
      const bool is_number =
          type == at::kFloat || type == at::kDouble || at::isIntegralType(type, false);
      number.can_vary = is_alone && is_number;
      numbers.push_back(number);
    });
  }
  return numbers;
}

std::vector<CallNumber> numbers_of(const DevicePlan& plan, const GroupedCall& group) {
  std::vector<CallNumber> numbers;
  for (const GroupedCall::Number& number : group.numbers()) {
    const bool varies = std::ranges::any_of(group.members(), [&](const Call* member) {
      const std::vector<CallNumber> own = numbers_of(plan, *member);
      return std::ranges::find(own, number.from.from, &CallNumber::argument) != own.end();
    });
    if (!varies) continue;
    const bool is_integral = group.call().arguments[number.argument].isInt();
    numbers.push_back(
        {.argument = number.argument, .domain = is_integral ? Domain::kIntegral : Domain::kReal});
  }
  return numbers;
}

void MadeUp::set(const std::vector<CallNumber>& numbers, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) set(numbers[i], values[i]);
}

void MadeUp::set(const CallNumber& number, double value) {
  c10::IValue& argument = call_.arguments[number.argument];
  const c10::IValue& own = own_[number.argument];
  if (number.is_tensor) {
    argument = tensor_like(own.toTensor(), value);
  } else if (number.item) {
    if (argument.is(own)) argument = own.deepcopy();
    argument.toList().set(*number.item, like(own.toListRef()[*number.item], value));
  } else {
    argument = like(own, value);
  }
}

std::vector<double> NumberUpdates::other_numbers(const Call& call,
                                                 const std::vector<CallNumber>& numbers) {
  if (numbers.empty() || !std::ranges::all_of(numbers, &CallNumber::can_vary)) return {};
  if (!are_exact(call, numbers)) return {};
  // all of them, together
  return sample_numbers(now(call, numbers), domains_of(numbers)).end()[-2];
}

std::string NumberUpdates::learn(Call& call, std::vector<CallNumber> numbers,
                                 const std::vector<double>& captured_with,
                                 const std::vector<cudaGraphNode_t>& nodes,
                                 const Capture& capture) {
  Updated updated{.call = &call, .numbers = std::move(numbers)};
  if (!std::ranges::all_of(updated.numbers, &CallNumber::can_vary)) {
    return "it takes a value of the host that is not a plain number";
  }
  if (!are_exact(call, updated.numbers)) return kInexact;
  const std::vector<double> own = now(call, updated.numbers);
  updated.last = captured_with;
  std::string why;
  for (const cudaGraphNode_t node : nodes) {
    std::optional<KernelImage> image = Graph::image_of(node, why);
    if (!image) return why;
    updated.nodes.push_back(node);
    updated.images.push_back(*std::move(image));
  }
  const auto drawn = sample_numbers(own, domains_of(updated.numbers));
  std::vector<ParameterSample> samples;
  SlotSearch search;
  // what differs by chance may do so in one capture alone: more of them show it
  for (int round = 0; round < kMostRounds && !search.slots; ++round) {
    for (const std::vector<double>& values : drawn) {
      MadeUp made_up(call);
      made_up.set(updated.numbers, values);
      auto images = capture(call, why);
      if (!images) return why;
      samples.push_back({values, *std::move(images)});
    }
    if (!std::ranges::equal(updated.images, samples.front().nodes, is_same_launch)) {
      return "it left other kernels in the graph than alone";
    }
    search = ParameterSlots::find(samples);
  }
  if (!search.slots) return search.reason;
  if (!search.slots->unused().empty()) return "a number that it takes shows in no kernel of it";
  for (const std::vector<double>* values : {&own, &captured_with}) {
    if (const auto objection = search.slots->objection(*values)) return objection->why;
  }
  // what was captured for the graph is what the samples say
  if (!search.slots->put(captured_with, updated.images).empty()) {
    return "it left other kernels in the graph than alone";
  }
  updated.slots = *std::move(search.slots);
  updated_.push_back(std::move(updated));
  return {};
}

std::optional<KeptOut> NumberUpdates::objection() const {
  for (const Updated& updated : updated_) {
    const Call& call = *updated.call;
    if (!are_there(call, updated.numbers)) continue;
    if (!are_exact(call, updated.numbers)) return KeptOut{call.op, kInexact};
    const std::vector<double> values = now(call, updated.numbers);
    if (same_bits(values, updated.last)) continue;
    if (const auto objection = updated.slots.objection(values)) {
      return KeptOut{call.op, "a number of " + name_of(call) + ": " + objection->why};
    }
  }
  return std::nullopt;
}

void NumberUpdates::put(Graph& graph) {
  for (Updated& updated : updated_) {
    std::vector<double> values = now(*updated.call, updated.numbers);
    if (same_bits(values, updated.last)) continue;
    for (const std::size_t node : updated.slots.put(values, updated.images)) {
      graph.set(updated.nodes[node], updated.images[node]);
    }
    updated.last = std::move(values);
  }
}

std::size_t NumberUpdates::kernels() const {
  std::size_t count = 0;
  for (const Updated& updated : updated_) {
    std::set<std::size_t> nodes;
    for (const Slot& slot : updated.slots.slots()) nodes.insert(slot.node);
    count += nodes.size();
  }
  return count;
}

}  // namespace steptape::replayer::cuda
