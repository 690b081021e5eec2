#include "steptape/verdict.h"

#include <gtest/gtest.h>

namespace steptape {
namespace {

TEST(VerdictTest, HoldsWithoutAPath) {
  EXPECT_TRUE(Verdict());
  EXPECT_EQ(Verdict().text(), "all guards hold");
}

TEST(VerdictTest, NamesTheFirstMismatch) {
  const Verdict verdict{"inputs[0].size(0)", "64", "17"};
  EXPECT_FALSE(verdict);
  EXPECT_EQ(verdict.text(), "inputs[0].size(0): 64 → 17");
}

}  // namespace
}  // namespace steptape
