#include "live/values.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "steptape/error.h"

namespace steptape::live {
namespace {

class ValuesTest : public testing::Test {
 protected:
  trace::Value value(const c10::IValue& ivalue) {
    return value_of(
        ivalue,
        [&](const at::Tensor& tensor) {
          if (!tensor.defined()) return trace::kNoTensor;
          tensors.push_back(tensor);
          return static_cast<trace::TensorId>(tensors.size() - 1);
        },
        [](const at::Generator&) { return std::string("default"); });
  }

  c10::IValue ivalue(const trace::Value& value, const c10::Type& type) {
    return ivalue_of(
        value, type,
        [&](trace::TensorId id) { return id == trace::kNoTensor ? at::Tensor() : tensors[id]; },
        [](const std::string&) { return at::Generator(); });
  }

  /// The declared type of an argument.
  const c10::Type& type(const char* name, const char* overload, const char* argument) {
    const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).schema();
    return *schema.arguments().at(*schema.argumentIndexWithName(argument)).type();
  }

  std::vector<at::Tensor> tensors;
};

TEST_F(ValuesTest, NumbersKeepTheirBits) {
  EXPECT_EQ(value(0.1), trace::Value{trace::Real{0.1}});
  EXPECT_FALSE(value(0.0) == value(-0.0));
  EXPECT_EQ(value(std::int64_t{1} << 60), trace::Value{std::int64_t{1} << 60});
  EXPECT_EQ(value(true), trace::Value{true});
  EXPECT_EQ(value(c10::complex<double>(1, 2)), (trace::Value{trace::Complex{{1}, {2}}}));
}

TEST_F(ValuesTest, ScalarsGoBackAsTheyCame) {
  const auto& alpha = type("aten::add_", "Tensor", "alpha");
  EXPECT_EQ(ivalue(value(0.1), alpha).toDouble(), 0.1);
  EXPECT_EQ(ivalue(value(std::int64_t{3}), alpha).toInt(), 3);
}

TEST_F(ValuesTest, UndefinedTensorsAndNoneStayApart) {
  EXPECT_EQ(value(at::Tensor()), trace::Value{trace::TensorRef{trace::kNoTensor}});
  EXPECT_EQ(value(c10::IValue()), trace::Value{trace::None{}});
  const auto& weight = type("aten::nll_loss_forward", "", "weight");
  EXPECT_TRUE(ivalue(value(c10::IValue()), weight).isNone());
  EXPECT_FALSE(ivalue(value(at::Tensor()), weight).toTensor().defined());
}

TEST_F(ValuesTest, ListsGoBackAsTheyCame) {
  const auto& sizes = type("aten::view", "", "size");
  const auto back = ivalue(value(std::vector<std::int64_t>{2, -1}), sizes);
  EXPECT_TRUE(back.isIntList());
  EXPECT_EQ(back.toIntVector(), (std::vector<std::int64_t>{2, -1}));
  const auto& cat = type("aten::cat", "", "tensors");
  const auto list = ivalue(value(std::vector<at::Tensor>{at::ones({2}), at::zeros({2})}), cat);
  EXPECT_TRUE(list.isTensorList());
  EXPECT_EQ(list.toTensorVector().size(), 2u);
}

TEST_F(ValuesTest, OptionalTensorListsKeepTheirGaps) {
  const c10::List<std::optional<at::Tensor>> indices({std::nullopt, at::ones({2}, at::kLong)});
  const auto found = value(indices);
  ASSERT_EQ(std::get<trace::List>(found.data).size(), 2u);
  const auto back = ivalue(found, type("aten::index", "Tensor", "indices"));
  EXPECT_TRUE(back.toListRef()[0].isNone());
  EXPECT_TRUE(back.toListRef()[1].isTensor());
}

TEST_F(ValuesTest, EmptyListsFitAnyElementType) {
  const auto& cat = type("aten::cat", "", "tensors");
  EXPECT_TRUE(ivalue({trace::IntList{}}, cat).toTensorVector().empty());
}

TEST_F(ValuesTest, MismatchesAreDataLoss) {
  const auto& self = type("aten::mm", "", "self");
  try {
    ivalue({trace::Real{1}}, self);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  }
  EXPECT_THROW(ivalue({trace::Opaque{"x"}}, self), Error);
  EXPECT_THROW(ivalue({trace::IntList{1}}, type("aten::cat", "", "tensors")), Error);
}

TEST_F(ValuesTest, CallsReplayFromValues) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
  const auto x = at::ones({3});
  const std::vector<c10::IValue> arguments{x, x, 0.5};
  torch::jit::Stack stack;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    stack.push_back(ivalue(value(arguments[k]), *op.schema().arguments()[k].type()));
  }
  op.callBoxed(stack);
  EXPECT_TRUE(at::equal(stack.back().toTensor(), at::full({3}, 1.5)));
}

}  // namespace
}  // namespace steptape::live
