#include "trace/model.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "steptape/error.h"
#include "tests/trace/text/named_value.h"

namespace steptape::trace {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

Tensor tensor(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
              std::int64_t offset = 0) {
  Tensor tensor;
  tensor.sizes = std::move(sizes);
  tensor.strides = std::move(strides);
  tensor.offset = offset;
  return tensor;
}

using Range = std::pair<std::uint64_t, std::uint64_t>;

TEST(TensorTest, RangeOfAContiguousTensorIsItsElements) {
  EXPECT_EQ(tensor({2, 3}, {3, 1}).byte_range(), Range(0, 24));
}

TEST(TensorTest, RangeStartsAtTheOffset) {
  EXPECT_EQ(tensor({3}, {1}, 2).byte_range(), Range(8, 20));
}

TEST(TensorTest, RangeOfStridesWithGapsEndsAtTheLastElement) {
  EXPECT_EQ(tensor({2, 2}, {10, 3}).byte_range(), Range(0, 56));
}

TEST(TensorTest, AnExpandedTensorSpansOneElement) {
  EXPECT_EQ(tensor({1000}, {0}).byte_range(), Range(0, 4));
}

TEST(TensorTest, AnEmptyTensorSpansNothing) {
  EXPECT_EQ(tensor({0, 5}, {5, 1}, 7).byte_range(), Range(0, 0));
}

TEST(TensorTest, AScalarTensorHasOneElement) {
  EXPECT_EQ(tensor({}, {}).numel(), 1);
  EXPECT_EQ(tensor({}, {}).byte_range(), Range(0, 4));
}

TEST(TensorTest, NegativeStridesReachBackwards) {
  EXPECT_EQ(tensor({3}, {-1}, 2).byte_range(), Range(0, 12));
}

TEST(TensorTest, AStartBeforeTheBufferIsDataLoss) {
  EXPECT_THROW(tensor({3}, {-1}, 1).byte_range(), Error);
}

TEST(TensorTest, OverflowIsDataLoss) {
  EXPECT_THROW(tensor({3}, {kHuge}).byte_range(), Error);
  EXPECT_THROW(tensor({2, 2}, {kHuge, kHuge}).byte_range(), Error);
  EXPECT_THROW(tensor({1}, {1}, kHuge).byte_range(), Error);
  EXPECT_THROW(tensor({2}, {std::numeric_limits<std::int64_t>::min()}).byte_range(), Error);
}

TEST(TensorTest, UnequalNumbersOfSizesAndStridesAreDataLoss) {
  EXPECT_THROW(tensor({2, 2}, {1}).byte_range(), Error);
}

TEST(TensorTest, NumelStopsAtTheLargestNumber) {
  EXPECT_EQ(tensor({kHuge, 2}, {0, 0}).numel(), kHuge);
  EXPECT_EQ(tensor({kHuge, 2, 0}, {0, 0, 0}).numel(), 0);
}

TEST(BufferTest, ContentsAreComparedByTheirBytes) {
  Buffer a;
  Buffer b;
  a.content = make_blob("abc", 3);
  b.content = make_blob("abc", 3);
  EXPECT_EQ(a, b);
  b.content = make_blob("abd", 3);
  EXPECT_NE(a, b);
  b.content = nullptr;
  EXPECT_NE(a, b);
}

TEST(SavedTest, ContentsAreComparedByTheirBytes) {
  EXPECT_EQ((Saved{"a", 0, make_blob("x", 1)}), (Saved{"a", 0, make_blob("x", 1)}));
  EXPECT_NE((Saved{"a", 0, make_blob("x", 1)}), (Saved{"a", 0, make_blob("y", 1)}));
}

TEST(RoleTest, NamesLeadBack) {
  for (unsigned number = 1; number <= static_cast<unsigned>(Role::kResult); ++number) {
    const auto role = static_cast<Role>(number);
    EXPECT_EQ(value_named<Role>(name_of(role)), role);
  }
  EXPECT_THROW(value_named<Role>("unknown"), Error);
}

TEST(StatusTest, NamesLeadBack) {
  for (unsigned number = 1; number <= static_cast<unsigned>(Status::kTrusted); ++number) {
    const auto status = static_cast<Status>(number);
    EXPECT_EQ(value_named<Status>(name_of(status)), status);
  }
  EXPECT_THROW(value_named<Status>(""), Error);
}

TEST(TraceTest, FindsAStepByItsName) {
  Trace trace;
  trace.steps.push_back({"train", "", {}});
  trace.steps.push_back({"eval", "", {}});
  EXPECT_EQ(trace.find_step("eval"), &trace.steps[1]);
  EXPECT_EQ(trace.find_step("test"), nullptr);
}

TEST(ValueTest, RealsAreComparedByTheirBits) {
  EXPECT_NE(Real{0.0}, Real{-0.0});
  EXPECT_EQ(Real{std::numeric_limits<double>::quiet_NaN()},
            Real{std::numeric_limits<double>::quiet_NaN()});
}

TEST(ValueTest, VisitsEveryTensorInOrder) {
  const Value value{List{{TensorRef{3}}, {List{{TensorRef{}}, {std::int64_t{1}}}}}};
  std::vector<TensorId> seen;
  for_each_tensor(value, [&seen](TensorId id) { seen.push_back(id); });
  EXPECT_EQ(seen, (std::vector<TensorId>{3, kNoTensor}));
}

}  // namespace
}  // namespace steptape::trace
