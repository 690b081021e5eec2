#include "replayer/runtime/cpu/kernels/preparation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>

#include "replayer/runtime/cpu/kernels/table.h"
#include "tests/replayer/awkward.h"
#include "tests/replayer/guarded_memory.h"
#include "tests/replayer/recorded_steps.h"

/// Kernels are made before the memory is there that they will read and write. Every row of the
/// tables is prepared over pages that nobody may touch, and then run between two of them.
namespace steptape::tests {
namespace {

using replayer::Call;
using replayer::cpu::KernelTable;
using Values = std::vector<c10::IValue>;

c10::OperatorHandle operator_named(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      name.substr(0, dot).c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

/// A call's arguments without its results, and where these lie.
struct Sample {
  Values arguments;
  Tensors results;
};

/// Samples of the rows of the table, their tensors on guarded memory.
class Samples {
 public:
  Sample of(const std::string& name) {
    if (name.find("foreach") != std::string::npos) return of_schema(operator_named(name));
    auto special = specials().find(name.substr(6));
    if (special == specials().end()) special = specials().find(base_of(name));
    if (special == specials().end()) return of_schema(operator_named(name));
    return special->second(*this);
  }
  /// Addresses of what was made, as a plan knows them.
  const replayer::cpu::PlannedMemory& planned() const { return planned_; }
  void open(bool is_open) { memory_.open(is_open); }

  at::Tensor tensor(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    at::Tensor made = memory_.make(sizes, dtype);
    const auto address = reinterpret_cast<std::uintptr_t>(made.storage().data());
    planned_.address_mod_64.emplace(made.storage().unsafeGetStorageImpl(), address % 64);
    return made;
  }

 private:
  using Make = Sample (*)(Samples& memory);

  /// "aten::nll_loss_forward.output" → "nll_loss_forward"
  static std::string base_of(const std::string& name) {
    const std::string base = name.substr(6, name.find('.') - 6);
    return base.ends_with("_") ? base.substr(0, base.size() - 1) : base;
  }

  /// Element-wise: every tensor of one shape, but for one beside a list, which stands for a number;
  /// every number with a default its own.
  Sample of_schema(const c10::OperatorHandle& op) {
    Sample sample;
    for (const c10::Argument& argument : op.schema().arguments()) {
      const bool is_beside_list = !sample.arguments.empty() &&
                                  sample.arguments.front().isTensorList() &&
                                  argument.type()->kind() == c10::TypeKind::TensorType;
      if (is_beside_list) {
        sample.arguments.emplace_back(tensor({}));
      } else if (!argument.is_out()) {
        sample.arguments.push_back(value_of(argument));
      }
    }
    const bool compares = op.schema().returns().size() == 1 && is_comparison(op.schema().name());
    const c10::IValue& first = sample.arguments.at(0);
    const std::size_t count = first.isTensorList() ? first.toTensorVector().size() : 1;
    for (std::size_t i = 0; i < count; ++i)
      sample.results.push_back(tensor({4, 16}, compares ? at::kBool : at::kFloat));
    return sample;
  }
  static bool is_comparison(const std::string& name) {
    const auto& all = comparisons();
    return std::ranges::find(all, name) != all.end();
  }
  static const std::vector<std::string>& comparisons() {
    static const std::vector<std::string> names = {"aten::eq", "aten::ne", "aten::lt",
                                                   "aten::le", "aten::gt", "aten::ge"};
    return names;
  }
  c10::IValue value_of(const c10::Argument& argument) {
    if (argument.default_value()) return *argument.default_value();
    const c10::Type& type = *argument.type();
    switch (type.kind()) {
      case c10::TypeKind::TensorType:
        return tensor({4, 16});
      case c10::TypeKind::NumberType:
      case c10::TypeKind::FloatType:
        return 0.25;
      case c10::TypeKind::BoolType:
        return false;
      case c10::TypeKind::OptionalType:
        return {};
      case c10::TypeKind::ListType:
        break;
      default:
        throw std::runtime_error("no sample of " + type.str());
    }
    switch (type.expectRef<c10::ListType>().getElementType()->kind()) {
      case c10::TypeKind::TensorType:
        return Tensors{tensor({4, 16}), tensor({4, 16})};
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return std::vector<std::int64_t>{4, 16};
      default: {
        c10::List<at::Scalar> numbers;
        numbers.push_back(0.25);
        numbers.push_back(0.5);
        return numbers;
      }
    }
  }

  static const std::map<std::string, Make>& specials();

  GuardedTensors memory_;
  replayer::cpu::PlannedMemory planned_;
};

std::vector<std::int64_t> sizes(std::initializer_list<std::int64_t> of) { return of; }

const std::map<std::string, Samples::Make>& Samples::specials() {
  static const std::map<std::string, Make> all = {
      {"mm",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), m.tensor({16, 8})}, {m.tensor({4, 8})}};
       }},
      {"addmm",
       [](Samples& m) -> Sample {
         return {{m.tensor({8}), m.tensor({4, 16}), m.tensor({16, 8}), 1, 1}, {m.tensor({4, 8})}};
       }},
      {"addmm_",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 8}), m.tensor({4, 16}), m.tensor({16, 8}), 1, 1}, {}};
       }},
      {"bmm",
       [](Samples& m) -> Sample {
         return {{m.tensor({2, 4, 16}), m.tensor({2, 16, 8})}, {m.tensor({2, 4, 8})}};
       }},
      {"baddbmm",
       [](Samples& m) -> Sample {
         return {{m.tensor({2, 4, 8}), m.tensor({2, 4, 16}), m.tensor({2, 16, 8}), 1, 1},
                 {m.tensor({2, 4, 8})}};
       }},
      {"nll_loss_forward",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), m.tensor({4}, at::kLong), at::Tensor(), 1, -100},
                 {m.tensor({}), m.tensor({})}};
       }},
      {"nll_loss_backward",
       [](Samples& m) -> Sample {
         return {{m.tensor({}), m.tensor({4, 16}), m.tensor({4}, at::kLong), at::Tensor(), 1, -100,
                  m.tensor({})},
                 {m.tensor({4, 16})}};
       }},
      {"max_pool2d_with_indices",
       [](Samples& m) -> Sample {
         return {{m.tensor({1, 2, 8, 8}), sizes({2, 2}), sizes({2, 2}), sizes({0, 0}),
                  sizes({1, 1}), false},
                 {m.tensor({1, 2, 4, 4}), m.tensor({1, 2, 4, 4}, at::kLong)}};
       }},
      {"native_batch_norm",
       [](Samples& m) -> Sample {
         return {{m.tensor({2, 3, 4, 4}), m.tensor({3}), m.tensor({3}), m.tensor({3}),
                  m.tensor({3}), true, 0.1, 1e-5},
                 {m.tensor({2, 3, 4, 4}), m.tensor({3}), m.tensor({3})}};
       }},
      {"_softmax",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), 1, false}, {m.tensor({4, 16})}};
       }},
      {"_log_softmax",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), 1, false}, {m.tensor({4, 16})}};
       }},
      {"_softmax_backward_data",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), m.tensor({4, 16}), 1, static_cast<std::int64_t>(at::kFloat)},
                 {m.tensor({4, 16})}};
       }},
      {"_log_softmax_backward_data",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), m.tensor({4, 16}), 1, static_cast<std::int64_t>(at::kFloat)},
                 {m.tensor({4, 16})}};
       }},
      {"sum",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), sizes({0}), false, {}}, {m.tensor({16})}};
       }},
      {"mean",
       [](Samples& m) -> Sample {
         return {{m.tensor({4, 16}), sizes({0}), false, {}}, {m.tensor({16})}};
       }},
      {"cat",
       [](Samples& m) -> Sample {
         return {{Tensors{m.tensor({4, 16}), m.tensor({2, 16})}, 0}, {m.tensor({6, 16})}};
       }},
      {"stack",
       [](Samples& m) -> Sample {
         return {{Tensors{m.tensor({4, 16}), m.tensor({4, 16})}, 0}, {m.tensor({2, 4, 16})}};
       }},
      {"select_backward",
       [](Samples& m) -> Sample {
         return {{m.tensor({16}), sizes({4, 16}), 0, 1}, {m.tensor({4, 16})}};
       }},
      {"slice_backward",
       [](Samples& m) -> Sample {
         return {{m.tensor({2, 16}), sizes({4, 16}), 0, 1, 3, 1}, {m.tensor({4, 16})}};
       }},
  };
  return all;
}

/// What the op leaves on copies of what the sample holds.
Tensors expected_of(const Call& call, const Tensors& results, std::size_t given) {
  Values arguments;
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.clone() : tensor;
  };
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const c10::IValue& value = call.arguments[i];
    if (value.isTensor()) {
      arguments.emplace_back(copy(value.toTensor()));
    } else if (value.isTensorList()) {
      Tensors copies;
      for (const at::Tensor& tensor : value.toTensorVector()) copies.push_back(copy(tensor));
      arguments.emplace_back(copies);
    } else {
      arguments.push_back(value);
    }
  }
  const Values kept = arguments;
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  call.callee.callBoxed(stack);
  Tensors left;
  for (const c10::IValue& value : stack.empty() ? torch::jit::Stack{kept.at(0)} : stack) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) left.push_back(tensor);
    } else {
      left.push_back(value.toTensor());
    }
  }
  EXPECT_EQ(left.size(), results.size()) << given;
  return left;
}

void fill(const c10::IValue& value) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) fill(tensor);
  } else if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor tensor = value.toTensor();
    if (tensor.is_floating_point()) {
      tensor.copy_(awkward(tensor.sizes()));
    } else {
      tensor.zero_();
    }
  }
}

class PreparationTest : public ::testing::TestWithParam<std::string> {
 protected:
  PreparationTest() : name_(GetParam()) {
    sample_ = samples_.of(name_);
    call_.arguments = sample_.arguments;
    const c10::FunctionSchema& schema = call_.callee.schema();
    const bool is_in_place = schema.arguments().front().alias_info() != nullptr &&
                             schema.arguments().front().alias_info()->isWrite() &&
                             !schema.arguments().front().is_out();
    if (is_in_place) {
      const c10::IValue& self = call_.arguments.front();
      sample_.results = self.isTensor() ? Tensors{self.toTensor()} : self.toTensorVector();
    } else if (schema.arguments().back().is_out()) {
      for (const at::Tensor& result : sample_.results) call_.arguments.emplace_back(result);
    }
  }

  replayer::cpu::KernelSite site() const {
    return {call_, std::vector<bool>(call_.arguments.size(), false), sample_.results,
            samples_.planned()};
  }

  std::string name_;
  Samples samples_;
  Sample sample_;
  Call call_{.callee = operator_named(name_)};
};

TEST_P(PreparationTest, TouchesNoMemory) {
  for (const KernelTable::Make make : *KernelTable::all().find(call_.callee.schema())) {
    replayer::cpu::Preparation made;
    ASSERT_TRUE(touches_nothing_guarded([&] { made = make(site()); }));
    EXPECT_TRUE(made.kernel != nullptr || !made.reason.empty());
  }
}

TEST_P(PreparationTest, TouchesItsOwnMemoryAloneWhenRun) {
  std::size_t made = 0;
  for (const KernelTable::Make make : *KernelTable::all().find(call_.callee.schema())) {
    samples_.open(false);
    const auto prepared = make(site());
    samples_.open(true);
    if (!prepared.kernel) continue;
    ++made;
    for (const c10::IValue& argument : call_.arguments) fill(argument);
    const Tensors expected = expected_of(call_, sample_.results, call_.arguments.size());
    ASSERT_TRUE(touches_nothing_guarded([&] { prepared.kernel->run(); }));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(sample_.results[i], expected[i])) << "result " << i;
    }
  }
  // its meta copies the bias into the result, which no kernel would do again
  EXPECT_EQ(made != 0, name_ != "aten::baddbmm.out");
}

INSTANTIATE_TEST_SUITE_P(Rows, PreparationTest, ::testing::ValuesIn(KernelTable::all().names()),
                         [](const auto& info) {
                           std::string name = info.param.substr(6);
                           std::ranges::replace(name, '.', '_');
                           return name + "_" + std::to_string(info.index);
                         });

TEST(GuardedMemoryTest, ATouchIsSeen) {
  GuardedTensors memory;
  const at::Tensor tensor = memory.make({16});
  const auto touch = [&](std::int64_t at) {
    return !touches_nothing_guarded([&] { *(tensor.mutable_data_ptr<float>() + at) = 1; });
  };
  EXPECT_TRUE(touch(0));
  memory.open(true);
  EXPECT_FALSE(touch(0));
  EXPECT_FALSE(touch(15));
  EXPECT_TRUE(touch(16));
}

TEST(StandInsTest, WhatLiesOnTheSameMemoryGoesOnDoingSo) {
  const at::Tensor whole = at::rand({4, 4});
  replayer::cpu::StandIns stand_ins;
  const at::Tensor first = stand_ins.of(whole), part = stand_ins.of(whole.select(0, 1));
  EXPECT_TRUE(first.is_same(stand_ins.of(whole)));
  EXPECT_TRUE(first.is_alias_of(part));
  EXPECT_EQ(part.storage_offset(), 4);
  EXPECT_THROW(first.add(1), c10::Error);
  EXPECT_THROW(at::zeros({4, 4}).copy_(first), c10::Error);
}

}  // namespace
}  // namespace steptape::tests
