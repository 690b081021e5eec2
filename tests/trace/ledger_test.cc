#include "trace/ledger.h"

#include <gtest/gtest.h>

namespace steptape::trace {
namespace {

TEST(CallOutcomeTest, NamesAndNumbersAreStable) {
  const std::pair<int, const char*> known[] = {
      {1, "recorded"}, {2, "trial"}, {3, "audit"}, {4, "replayed"}, {5, "eager"}};
  ASSERT_EQ(call_outcomes().size(), std::size(known));
  for (const auto& [number, name] : known) EXPECT_EQ(name_of(CallOutcome(number)), name);
}

}  // namespace
}  // namespace steptape::trace
