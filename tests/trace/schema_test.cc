#include <gmock/gmock.h>

#include "trace/operators.h"

namespace steptape::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string_view> names_of(std::string_view schema) {
  std::vector<std::string_view> names;
  for (const SchemaArgument& argument : arguments_of(schema)) names.push_back(argument.name);
  return names;
}

TEST(SchemaTest, ArgumentsAreNamedInOrder) {
  EXPECT_THAT(names_of("aten::mm(Tensor self, Tensor mat2) -> Tensor"),
              ElementsAre("self", "mat2"));
}

TEST(SchemaTest, AnInPlaceArgumentIsWrittenAndNoOutput) {
  const auto arguments = arguments_of(
      "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)");
  ASSERT_EQ(arguments.size(), 3u);
  EXPECT_TRUE(arguments[0].is_written);
  EXPECT_FALSE(arguments[0].is_output);
  EXPECT_FALSE(arguments[1].is_written);
  EXPECT_EQ(arguments[2].name, "alpha");
  EXPECT_FALSE(arguments[2].is_written);
}

TEST(SchemaTest, AnAnnotatedKeywordArgumentIsAnOutput) {
  const auto arguments =
      arguments_of("aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)");
  ASSERT_EQ(arguments.size(), 3u);
  EXPECT_EQ(arguments[2].name, "out");
  EXPECT_TRUE(arguments[2].is_output);
}

TEST(SchemaTest, AViewAnnotationIsNoWrite) {
  const auto arguments = arguments_of("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
  ASSERT_EQ(arguments.size(), 2u);
  EXPECT_FALSE(arguments[0].is_written);
}

TEST(SchemaTest, EachTensorOfAnAnnotatedListIsWritten) {
  const auto arguments =
      arguments_of("aten::_foreach_mul_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()");
  ASSERT_EQ(arguments.size(), 2u);
  EXPECT_TRUE(arguments[0].is_written);
}

TEST(SchemaTest, CommasInDefaultsPartNoArguments) {
  EXPECT_THAT(names_of("a::b(int[2] stride=[1, 1], str mode=\"(x,!\", float? eps=None) -> ()"),
              ElementsAre("stride", "mode", "eps"));
  EXPECT_FALSE(arguments_of("a::b(str mode=\"!\") -> ()")[0].is_written);
}

TEST(SchemaTest, ArgumentsHaveTypesAndThoseBehindTheStarAreKeywords) {
  const auto arguments = arguments_of(
      "aten::f(Tensor(a!) self, Tensor?[] indices, int[2] stride=[1, 1], *, ScalarType? dtype=None)"
      " -> Tensor(a!)");
  ASSERT_EQ(arguments.size(), 4u);
  EXPECT_EQ(arguments[0].type, "Tensor(a!)");
  EXPECT_EQ(arguments[1].type, "Tensor?[]");
  EXPECT_EQ(arguments[2].type, "int[2]");
  EXPECT_FALSE(arguments[2].is_keyword);
  EXPECT_EQ(arguments[3].type, "ScalarType?");
  EXPECT_TRUE(arguments[3].is_keyword);
}

TEST(SchemaTest, AnArgumentWithoutATypeHasNone) {
  EXPECT_EQ(arguments_of("a::b(x)")[0].type, "");
  EXPECT_EQ(arguments_of("a::b(x)")[0].name, "x");
}

TEST(SchemaTest, TextThatIsNoSchemaEndsSomewhere) {
  EXPECT_THAT(arguments_of(""), IsEmpty());
  EXPECT_THAT(arguments_of("aten::rand() -> Tensor"), IsEmpty());
  EXPECT_THAT(names_of("aten::mm(Tensor self, Tensor(a"), ElementsAre("self", "Tensor(a"));
}

}  // namespace
}  // namespace steptape::trace
