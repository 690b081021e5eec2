#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"
#include "tools/export/python_value.h"
#include "trace/operators.h"
#include "trace/text/text.h"
#include "trace/value.h"

namespace steptape::tools {
namespace {

/// Why no program can be made of an op, in words.
struct NoProgram {
  std::string reason;
};

/// Bytes of a captured constant up to which a program holds them.
inline constexpr std::size_t kMostBytes = 4096;

/// Python reads a source's encoding from a comment of the first two lines: no name may stand there.
constexpr std::string_view kTitle =
    "# One op of a recorded step, as `steptape extract` writes it: run it with Python and torch.\n"
    "# Geometry, dtypes and scalars are the recorded ones; values are drawn from a seed.\n";

constexpr std::string_view kHead = R"(import ctypes
import hashlib

import torch

torch.manual_seed(0)

def memory(size, remainder, device):
    """A buffer of `size` bytes; on the CPU its address is `remainder` modulo 64: bits may depend on it."""
    if device != 'cpu' or size == 0:
        return torch.zeros(size, dtype=torch.uint8, device=device)
    room = bytearray(size + 63)
    start = (remainder - ctypes.addressof(ctypes.c_char.from_buffer(room))) % 64
    return torch.frombuffer(room, dtype=torch.uint8, count=size, offset=start)

def drawn(buffer, dtype, low=0, high=1):
    """The buffer, filled with elements: reals from 0 to 1, integers from `low` to `high`."""
    count = buffer.numel() // dtype.itemsize
    if dtype.is_complex:
        elements = torch.rand(count, dtype=torch.complex64)
    elif dtype.is_floating_point:
        elements = torch.rand(count)
    else:
        high = min(high, 2**63 - 2)
        elements = torch.randint(min(low, high), high + 1, (count,))
    buffer[:count * dtype.itemsize].view(dtype).copy_(elements)
    return buffer

def holding(buffer, content):
    """The buffer with these bytes, in hexadecimal."""
    return buffer.copy_(torch.frombuffer(bytearray.fromhex(content), dtype=torch.uint8))

def view(buffer, dtype, size, stride, offset):
    """A tensor in the buffer."""
    empty = torch.empty(0, dtype=dtype, device=buffer.device)
    return empty.set_(buffer.untyped_storage(), offset, size, stride)

def show(name, value, recorded=None):
    """Prints geometry and digest, and the recorded geometry where it is another."""
    if isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            show(f'{name}[{position}]', item, recorded and recorded[position])
        return
    if not isinstance(value, torch.Tensor) or value.is_meta or value.layout != torch.strided:
        print(f'{name}: {value}')
        return
    geometry = f'{str(value.dtype)[6:]} {list(value.shape)} strides {list(value.stride())}'
    plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
    digest = hashlib.sha256(ctypes.string_at(plain.data_ptr(), plain.nbytes)).hexdigest()[:16]
    print(f'{name}: {geometry} sha256 {digest}')
    if recorded not in (None, geometry):
        print(f'{name} when it was recorded: {recorded}')

)";

/// Text for a comment: what is not printable ASCII is escaped.
std::string commented(std::string_view text) {
  const std::string quoted = python_string(text);
  return quoted.substr(1, quoted.size() - 2);
}

class Program : private PythonValue {
 public:
  Program(const ChosenRecording& chosen, trace::Index position)
      : chosen_(chosen),
        recording_(chosen.recording()),
        op_(recording_.ops[position]),
        operator_(recording_.operator_of(op_)),
        arguments_(trace::arguments_of(operator_.schema)),
        position_(position) {
    for (const trace::Value& input : op_.inputs) {
      for_each_tensor(input, [this](trace::TensorId id) {
        if (id != trace::kNoTensor && !number_in(id)) made_.insert(id);
      });
    }
  }

  std::variant<std::string, NoProgram> take() const {
    for (const trace::TensorId id : made_) {
      if (buffer_of(id).device.kind != trace::DeviceKind::kOther) continue;
      return NoProgram{fmt::format("tensor t{} is on a device that no program can name", id)};
    }
    if (operator_.name.find("::") == std::string::npos || arguments_.size() != op_.inputs.size()) {
      return NoProgram{"its schema does not say how it is called"};
    }
    std::vector<std::string> arguments;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const trace::SchemaArgument& argument = arguments_[i];
      const std::optional<std::string> value = text(op_.inputs[i], argument.type);
      if (!value) {
        return NoProgram{fmt::format("argument `{}` is {}", shown(argument.name),
                                     shown(trace::words_of(op_.inputs[i])))};
      }
      arguments.push_back(argument.is_keyword ? python_keyword_argument(argument.name, *value)
                                              : *value);
    }
    return fmt::format("{}{}{}{}{}{}", kTitle, heading(), kHead, python_ambient(recording_.ambient),
                       inputs(), call(arguments));
  }

 private:
  const trace::Buffer& buffer_of(trace::TensorId id) const {
    return recording_.buffers[recording_.tensors[id].buffer];
  }

  /// A number that took part in the op in a tensor's place: it stands as a number here too, so that
  /// types are promoted alike.
  std::optional<std::string> number_in(trace::TensorId id) const {
    const trace::Tensor& tensor = recording_.tensors[id];
    const trace::Blob& content = buffer_of(id).content;
    if (!tensor.wrapped_number || !content || content->size() != bytes_of(tensor.dtype)) {
      return std::nullopt;
    }
    trace::Value number = trace::element_of(content->data(), tensor.dtype);
    if (tensor.dtype == trace::DType::kComplex128) {
      trace::Complex parts;
      std::memcpy(&parts.real.value, content->data(), sizeof parts.real.value);
      std::memcpy(&parts.imag.value, content->data() + sizeof parts.real.value,
                  sizeof parts.imag.value);
      number.data = parts;
    }
    if (std::holds_alternative<trace::None>(number.data)) return std::nullopt;
    return text(number, "");
  }

  std::string tensor_name(trace::TensorId id) const override {
    return number_in(id).value_or(fmt::format("t{}", id));
  }

  std::string generator() const override {
    trace::Device device;
    const auto note = [&](trace::TensorId id) {
      if (id != trace::kNoTensor) device = buffer_of(id).device;
    };
    for (const trace::Value& input : op_.inputs) for_each_tensor(input, note);
    for (const trace::Value& output : op_.outputs) for_each_tensor(output, note);
    return fmt::format("torch.Generator('{}').manual_seed(0)", text_of(device));
  }

  std::string heading() const {
    std::string text = fmt::format("#\n# Op {} of step {}, recording {}:\n", position_,
                                   commented(chosen_.step->name), chosen_.position);
    text += fmt::format("#   {}\n", commented(trace::print_op(recording_, op_)));
    if (op_.module != trace::kNone) {
      text += fmt::format("# in {}\n", commented(recording_.modules[op_.module].path));
    }
    if (op_.scope != trace::kNone) {
      text += fmt::format("# at {}\n", commented(recording_.scopes[op_.scope]));
    }
    return text;
  }

  /// The least and largest element of the step's input that lies in `buffer`.
  std::optional<std::pair<std::int64_t, std::int64_t>> range_of(trace::BufferId buffer) const {
    for (const trace::Input& input : recording_.inputs) {
      const trace::Tensor* tensor = recording_.find_tensor(input.value);
      if (tensor != nullptr && tensor->buffer == buffer) return input.range;
    }
    return std::nullopt;
  }

  /// The buffers, and the tensors in them.
  std::string inputs() const {
    std::string text;
    std::set<trace::BufferId> buffers;
    for (const trace::TensorId id : made_) {
      const trace::Tensor& tensor = recording_.tensors[id];
      if (buffers.insert(tensor.buffer).second) text += buffer(tensor);
      text += fmt::format("t{} = {}view(b{}, {}, [{}], [{}], {}){}{}\n", id,
                          tensor.neg ? "torch._neg_view(" : "", tensor.buffer,
                          python_dtype(tensor.dtype), fmt::join(tensor.sizes, ", "),
                          fmt::join(tensor.strides, ", "), tensor.offset, tensor.neg ? ")" : "",
                          tensor.conj ? ".conj()" : "");
    }
    return text;
  }

  /// Filled with elements of the dtype of `tensor`, which lies in it.
  std::string buffer(const trace::Tensor& tensor) const {
    const trace::Buffer& buffer = recording_.buffers[tensor.buffer];
    const std::string memory = fmt::format("memory({}, {}, '{}')", buffer.bytes,
                                           buffer.address_mod_64, text_of(buffer.device));
    const std::string words =
        buffer.path.empty() ? std::string(name_of(buffer.role)) : commented(buffer.path);
    if (buffer.content && buffer.content->size() <= kMostBytes && !buffer.content->empty()) {
      return fmt::format("b{} = holding({}, '{}')  # {}\n", tensor.buffer, memory,
                         trace::hex_of(*buffer.content).substr(1), words);
    }
    const auto range = range_of(tensor.buffer);
    return fmt::format("b{} = drawn({}, {}{})  # {}\n", tensor.buffer, memory,
                       python_dtype(tensor.dtype),
                       range ? fmt::format(", {}, {}", range->first, range->second) : "", words);
  }

  /// The recorded geometry of what stands in `output`, as the program puts it.
  std::string geometry_of(const trace::Value& output) const {
    if (const auto* list = std::get_if<trace::List>(&output.data)) return geometry_of(*list);
    const trace::Tensor* tensor = recording_.find_tensor(output);
    return tensor == nullptr ? "None"
                             : fmt::format("'{} strides [{}]'", trace::words_of_geometry(*tensor),
                                           fmt::join(tensor->strides, ", "));
  }
  std::string geometry_of(const trace::List& outputs) const {
    std::vector<std::string> each;
    for (const trace::Value& output : outputs) each.push_back(geometry_of(output));
    return fmt::format("[{}]", fmt::join(each, ", "));
  }

  std::string call(const std::vector<std::string>& arguments) const {
    const std::size_t split = operator_.name.find("::");
    const std::string space = python_attribute("torch.ops", operator_.name.substr(0, split));
    const std::string function =
        python_attribute(python_attribute(space, operator_.name.substr(split + 2)),
                         operator_.overload.empty() ? "default" : operator_.overload);
    std::string text = fmt::format(
        "\nwith torch.no_grad():\n    result = {}({})\nshow('result', result, {})\n", function,
        fmt::join(arguments, ", "),
        op_.outputs.size() == 1 ? geometry_of(op_.outputs[0]) : geometry_of(op_.outputs));
    const std::vector<trace::OpUse> uses = trace::uses_of(recording_);
    for (const trace::TensorId id : uses[position_].writes) {
      if (made_.contains(id)) text += fmt::format("show('t{} afterwards', t{})\n", id, id);
    }
    return text;
  }

  const ChosenRecording& chosen_;
  const trace::Recording& recording_;
  const trace::Op& op_;
  const trace::Operator& operator_;
  std::vector<trace::SchemaArgument> arguments_;
  trace::Index position_;
  std::set<trace::TensorId> made_;  ///< tensors of the op, but for those that stand for numbers
};

/// A Python program that runs op `position` of a recording alone: it makes inputs of the recorded
/// geometry, those that share memory in one buffer with the recorded remainder of its address, with
/// seeded values; constants of at most kMostBytes hold the recorded bytes. It calls the operator
/// with the recorded scalars under the recorded switches of torch, and prints geometry and digest
/// of what it gives and writes, and the recorded geometry where that differs. `position` must be
/// that of an op.
std::variant<std::string, NoProgram> extract_python(const ChosenRecording& chosen,
                                                    trace::Index position) {
  return Program(chosen, position).take();
}

struct Options : RecordingOptions {
  std::size_t op = 0;
};

/// The exit code.
int extract(const Options& options) {
  const trace::Trace trace = open_trace(options.path, Parts::kAll);
  const ChosenRecording chosen = choose_recording(trace, options.step, options.recording);
  const std::size_t count = chosen.recording().ops.size();
  if (options.op >= count) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("recording {} has no op {}; it has {}, counted from 0", chosen.position,
                            options.op, count_of(count, "op")));
  }
  const auto program = extract_python(chosen, static_cast<trace::Index>(options.op));
  if (const auto* none = std::get_if<NoProgram>(&program)) {
    complain(fmt::format("no program can run op {}: {}", options.op, none->reason));
    return kDiffers;
  }
  put_result(std::get<std::string>(program), options.out);
  return kGood;
}

}  // namespace

void add_extract(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("extract", "Write a Python program that runs one recorded op alone");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->path, "A trace")->required();
  command->add_option("--op", options->op, "The op at this position, from 0")->required();
  add_options(*command, *options);
  command->footer(
      "Shapes, strides, dtypes and scalars are the recorded ones. Values are made up from a seed,\n"
      "but for captured constants of up to 4 KiB.\n"
      "Examples:\n"
      "  steptape extract run.tape --op 17 -o op17.py && python op17.py\n"
      "Exit status: 0 written, 1 no program can make the op's arguments, 2 trouble.");
  command->callback([options, &exit_code] { exit_code = extract(*options); });
}

}  // namespace steptape::tools
