#include "guards/ambient_guard.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace steptape::guards {
namespace {

TEST(AmbientGuardTest, HoldsWhileNothingChanges) {
  EXPECT_TRUE(AmbientGuard(live::Ambient::current()).check());
}

TEST(AmbientGuardTest, NamesTheSwitchThatChanged) {
  const AmbientGuard guard(live::Ambient::current());
  const at::NoGradGuard no_grad;
  const Verdict verdict = guard.check();
  EXPECT_EQ(verdict.path, "ambient.grad_mode");
  EXPECT_NE(verdict.expected, verdict.found);
}

TEST(CompareFactsTest, NamesTheFirstThatDiffersOrIsUnknown) {
  const std::vector<trace::Fact> recorded = {{"threads", "2"}, {"blas", "mkl"}};
  EXPECT_TRUE(compare_facts(recorded, {{"blas", "mkl"}, {"threads", "2"}}, "environment."));
  EXPECT_EQ(compare_facts(recorded, {{"blas", "mkl"}, {"threads", "4"}}, "environment.").text(),
            "environment.threads: 2 → 4");
  EXPECT_EQ(compare_facts(recorded, {{"threads", "2"}}, "environment.").path, "environment.blas");
}

}  // namespace
}  // namespace steptape::guards
