#include "replayer/runtime/cuda/plan/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "live/contents.h"
#include "live/operators.h"
#include "live/tensors.h"
#include "trace/value.h"

namespace steptape::replayer::cuda {
namespace {

/// Numbers of an optimizer's size, some that operators have special cases for, and odd ones.
constexpr std::array kReals = {0.9, -0.001, 1e-8, 0.1 / 3, 1.0, -1.0, 1e4, 2.0, 0.0, 0.5, -0.0};
constexpr std::array<std::int64_t, 5> kIntegers = {1, 3, -7, 0, 1000};

/// Elements of all magnitudes in no order, as kernels for lists take them in chunks and others in
/// vectors: an odd number of them.
constexpr std::int64_t kElements = 1031;

at::Tensor made_up(at::ScalarType dtype, const at::Device& device, std::uint64_t seed,
                   std::int64_t elements) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr std::array kOdd = {0.0,   -0.0,   1.0,  -1.0, kInfinity, -kInfinity,
                               1e-42, -1e-40, 3e38, kNaN, -kNaN};
  at::Tensor host = at::empty({elements}, at::kDouble);
  auto* element = host.mutable_data_ptr<double>();
  std::mt19937_64 random(seed);
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto bits = random();
    const double mantissa = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
    const int exponent = static_cast<int>(bits & 31) - 20;
    element[i] = std::ldexp((bits & 64) != 0 ? mantissa : -mantissa, exponent);
    if (bits % 23 == 0) element[i] = kOdd[(bits >> 8) % kOdd.size()];
  }
  return (elements == 1 ? host.view({}) : host).to(dtype).to(device);
}

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  return live::bytes_on_host(tensor.const_data_ptr(), tensor.device(), tensor.nbytes());
}

/// How an argument is given to the op: as a number, or as a tensor of one on the host.
struct NumberKind {
  bool is_real = true;
  std::optional<trace::Tensor> tensor = {};

  std::string words() const {
    return tensor ? fmt::format("{}{}", name_of(tensor->dtype), tensor->wrapped_number ? "w" : "")
                  : std::string(is_real ? "r" : "i");
  }
  c10::IValue made(std::size_t which) const {
    const c10::IValue plain = is_real ? c10::IValue(kReals[which % kReals.size()])
                                      : c10::IValue(kIntegers[which % kIntegers.size()]);
    if (!tensor) return plain;
    at::Tensor number = at::scalar_tensor(plain.toScalar(), live::scalar_type_of(tensor->dtype));
    number.unsafeGetTensorImpl()->set_wrapped_number(tensor->wrapped_number);
    return number;
  }
};

class Trial {
 public:
  Trial(const Program& program, const ForeachOperator& by, trace::Index op)
      : recording_(*program.recording),
        op_(recording_.ops[op]),
        callee_(program.instructions[op].callee),
        by_(by) {
    const trace::Tensor& first = tensor_of(by.arguments[0].from);
    dtype_ = live::scalar_type_of(first.dtype);
    device_ = live::device_of(recording_.buffers[first.buffer].device);
    for (const ForeachArgument& argument : by.arguments) {
      if (argument.is_number()) kinds_.push_back(kind_of(argument.from));
    }
  }

  std::string key() const {
    std::string key = fmt::format("{} {}.{} {} {}", by_.op, by_.name, by_.overload,
                                  static_cast<int>(dtype_), device_.str());
    for (const ForeachArgument& argument : by_.arguments) {
      key += fmt::format(" {}", static_cast<int>(argument.kind));
    }
    for (const NumberKind& kind : kinds_) key += " " + kind.words();
    return key;
  }

  bool passes() const {
    const auto foreach = live::find_operator({by_.name, by_.overload, ""});
    if (!foreach || !foreach->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return false;
    const live::Unseen unseen;
    const std::size_t numbers = kinds_.empty() ? 1 : kReals.size();
    for (std::size_t which = 0; which < numbers; ++which) {
      if (!passes(*foreach, which)) return false;
    }
    return true;
  }

 private:
  const trace::Tensor& tensor_of(std::size_t argument) const {
    return recording_.tensors[std::get<trace::TensorRef>(op_.inputs[argument].data).id];
  }
  NumberKind kind_of(std::size_t argument) const {
    const trace::Value& value = op_.inputs[argument];
    if (!std::holds_alternative<trace::TensorRef>(value.data)) {
      return {std::holds_alternative<trace::Real>(value.data)};
    }
    const trace::Tensor& tensor = tensor_of(argument);
    return {at::isFloatingType(live::scalar_type_of(tensor.dtype)), tensor};
  }

  /// What two ops are given, each of its own tensors.
  struct Given {
    std::vector<std::vector<at::Tensor>> lists;  ///< by argument of the operator for lists
    std::vector<c10::IValue> numbers;
    at::Tensor shared;
  };
  static constexpr std::array<std::int64_t, 2> kSizes = {kElements, 256};

  Given given(std::size_t which) const {
    Given given;
    for (std::size_t a = 0; a < by_.arguments.size(); ++a) {
      std::vector<at::Tensor>& list = given.lists.emplace_back();
      if (by_.arguments[a].kind != ForeachArgument::Kind::kEach) continue;
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        list.push_back(made_up(dtype_, device_, 100 * which + 10 * i + a, kSizes[i]));
      }
    }
    for (std::size_t i = 0; i < kinds_.size(); ++i) given.numbers.push_back(kinds_[i].made(which));
    given.shared = made_up(dtype_, device_, 7 + which, 1);
    return given;
  }

  bool passes(const c10::OperatorHandle& foreach, std::size_t which) const {
    const Given tensors = given(which);
    std::vector<std::byte> expected;
    for (std::size_t i = 0; i < kSizes.size(); ++i) append(expected, left_by_op(tensors, i));
    std::vector<std::byte> left;
    for (const at::Tensor& tensor : left_by(foreach, tensors)) append(left, tensor);
    return left == expected;
  }

  /// What the op makes of copies of the tensors at `position`.
  at::Tensor left_by_op(const Given& given, std::size_t position) const {
    torch::jit::Stack stack;
    for (const c10::Argument& argument : callee_.schema().arguments()) {
      stack.push_back(argument.default_value().value_or(c10::IValue()));
    }
    auto number = given.numbers.begin();
    for (std::size_t a = 0; a < by_.arguments.size(); ++a) {
      const ForeachArgument& argument = by_.arguments[a];
      if (argument.is_number()) {
        stack[argument.from] = *number++;
      } else if (argument.kind == ForeachArgument::Kind::kShared) {
        stack[argument.from] = given.shared;
      } else {
        stack[argument.from] = given.lists[a][position].clone();
      }
    }
    if (by_.out) stack[*by_.out] = stack[by_.arguments[0].from];
    callee_.callBoxed(stack);
    return stack.back().toTensor();
  }

  std::vector<at::Tensor> left_by(const c10::OperatorHandle& foreach, const Given& given) const {
    torch::jit::Stack stack;
    auto number = given.numbers.begin();
    for (std::size_t a = 0; a < by_.arguments.size(); ++a) {
      const ForeachArgument& argument = by_.arguments[a];
      if (argument.is_number()) {
        stack.push_back(foreach_number(*number++, argument.kind, dtype_));
      } else if (argument.kind == ForeachArgument::Kind::kShared) {
        stack.emplace_back(given.shared);
      } else {
        stack.emplace_back(given.lists[a]);
      }
    }
    add_defaults(foreach.schema(), stack);
    foreach
      .callBoxed(stack);
    return stack.empty() ? given.lists[0] : stack.back().toTensorVector();
  }

  static void append(std::vector<std::byte>& bytes, const at::Tensor& tensor) {
    const std::vector<std::byte> more = bytes_of(tensor);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }

  const trace::Recording& recording_;
  const trace::Op& op_;
  c10::OperatorHandle callee_;
  const ForeachOperator& by_;
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  std::vector<NumberKind> kinds_;
};

}  // namespace

void add_defaults(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  for (std::size_t a = stack.size(); a < schema.arguments().size(); ++a) {
    stack.push_back(schema.arguments()[a].default_value().value());
  }
}

bool agrees(const Program& program, const ForeachOperator& by, trace::Index op) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  const Trial trial(program, by, op);
  const std::string key = trial.key();
  {
    const std::lock_guard lock(mutex);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
  }
  bool passes = false;
  try {
    passes = trial.passes();
  } catch (const c10::OutOfMemoryError&) {
    return false;  // another plan may find some
  } catch (const std::exception&) {
    // an operator that cannot be called so agrees with nothing
  }
  const std::lock_guard lock(mutex);
  return known[key] = passes;
}

c10::IValue foreach_number(const c10::IValue& value, ForeachArgument::Kind kind,
                           at::ScalarType dtype) {
  at::Scalar number;
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    const trace::Value element =
        trace::element_of(static_cast<const std::byte*>(tensor.const_data_ptr()),
                          live::dtype_of(tensor.scalar_type()));
    const auto* integer = std::get_if<std::int64_t>(&element.data);
    number = integer != nullptr ? at::Scalar(*integer) : at::Scalar(trace::number_of(element));
  } else {
    number = value.toScalar();
  }
  if (kind != ForeachArgument::Kind::kReciprocal) return number;
  if (dtype == at::kDouble) return 1.0 / number.toDouble();
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double divisor = number.toDouble();
  if (std::abs(divisor) > kLargest) return std::copysign(0.0, divisor);
  return static_cast<double>(1.0F / static_cast<float>(divisor));
}

namespace {

using enum ForeachArgument::Kind;

class Table {
 public:
  Table() {
    for (const char* suffix : {"", "_"}) {
      for (const char* name : {"add", "sub"}) {
        put(name, suffix, ".Tensor", "List", {{kEach, 0}, {kEach, 1}, {kNumber, 2}});
      }
      for (const char* name : {"mul", "div"}) {
        put(name, suffix, ".Tensor", "List", {{kEach, 0}, {kEach, 1}});
        put(name, suffix, ".Tensor", "Tensor", {{kEach, 0}, {kShared, 1}});
      }
      // numbers of the host are tensors where Python calls, and numbers where C++ does
      for (const char* overload : {".Tensor", ".Scalar"}) {
        for (const char* name : {"add", "sub", "mul", "div"}) {
          put(name, suffix, overload, "Scalar", {{kEach, 0}, {kNumber, 1}});
        }
        // ATen multiplies by the reciprocal of such a divisor (BinaryDivTrueKernel.cu)
        put("div", suffix, overload, "Scalar", {{kEach, 0}, {kReciprocal, 1}}, "mul");
      }
      for (const char* name : {"addcmul", "addcdiv"}) {
        put(name, suffix, "", "Scalar", {{kEach, 0}, {kEach, 1}, {kEach, 2}, {kNumber, 3}});
      }
      put("lerp", suffix, ".Scalar", "Scalar", {{kEach, 0}, {kEach, 1}, {kNumber, 2}});
      for (const char* name : {"abs", "exp", "neg", "reciprocal", "rsqrt", "sign", "sqrt"}) {
        put(name, suffix, "", "", {{kEach, 0}});
      }
    }
    put("maximum", "", "", "List", {{kEach, 0}, {kEach, 1}});
    put("minimum", "", "", "List", {{kEach, 0}, {kEach, 1}});
    rows_.push_back({"aten::maximum.out",
                     "aten::_foreach_maximum_",
                     "List",
                     {{kEach, 0}, {kEach, 1}},
                     /*out=*/2});
    put("zero", "_", "", "", {{kEach, 0}});
    put("copy", "_", "", "", {{kEach, 0}, {kEach, 1}});
  }

  const std::vector<ForeachOperator>& rows() const { return rows_; }

 private:
  void put(const std::string& name, const std::string& suffix, const std::string& overload,
           const std::string& foreach_overload, std::vector<ForeachArgument> arguments,
           const std::string& foreach_name = "") {
    const std::string& stem = foreach_name.empty() ? name : foreach_name;
    rows_.push_back({"aten::" + name + suffix + overload, "aten::_foreach_" + stem + suffix,
                     foreach_overload, std::move(arguments)});
  }

  std::vector<ForeachOperator> rows_;
};

}  // namespace

std::vector<const ForeachOperator*> foreach_operators_of(std::string_view op) {
  static const Table table;
  std::vector<const ForeachOperator*> found;
  for (const ForeachOperator& row : table.rows()) {
    if (row.op == op) found.push_back(&row);
  }
  return found;
}

}  // namespace steptape::replayer::cuda
