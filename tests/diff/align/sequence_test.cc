#include "diff/align/sequence.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Items = std::vector<std::uint64_t>;

/// Length of the longest common subsequence, by the table.
std::size_t longest(const Items& a, const Items& b) {
  std::vector<std::vector<std::size_t>> length(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      length[i][j] = a[i - 1] == b[j - 1] ? length[i - 1][j - 1] + 1
                                          : std::max(length[i - 1][j], length[i][j - 1]);
    }
  }
  return length[a.size()][b.size()];
}

Items draw(std::size_t size, std::uint64_t kinds, std::mt19937_64& random) {
  Items items(size);
  for (std::uint64_t& item : items) item = random() % kinds;
  return items;
}

void expect_common(const Items& a, const Items& b, const std::vector<Match>& matches) {
  for (std::size_t i = 0; i < matches.size(); ++i) {
    ASSERT_EQ(a.at(matches[i].a), b.at(matches[i].b));
    if (i == 0) continue;
    ASSERT_LT(matches[i - 1].a, matches[i].a);
    ASSERT_LT(matches[i - 1].b, matches[i].b);
  }
}

TEST(CommonSubsequenceTest, IsALongestOne) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const Items a = draw(random() % 40, 1 + random() % 8, random);
    const Items b = draw(random() % 40, 1 + random() % 8, random);
    const auto matches = common_subsequence(a, b);
    expect_common(a, b, matches);
    ASSERT_EQ(matches.size(), longest(a, b)) << round;
  }
}

TEST(CommonSubsequenceTest, OfNothingIsEmpty) {
  EXPECT_THAT(common_subsequence({}, {}), IsEmpty());
  EXPECT_THAT(common_subsequence(Items{1}, {}), IsEmpty());
  EXPECT_THAT(common_subsequence(Items{1}, Items{2}), IsEmpty());
}

TEST(CommonSubsequenceTest, IsCommonWhereItIsNoLongerLookedForExactly) {
  std::mt19937_64 random(7);
  const Items a = draw(5000, 50, random);  // no anchors
  const Items b = draw(4000, 50, random);
  expect_common(a, b, common_subsequence(a, b));
  const Items c = draw(5000, 1'000'000, random);  // nothing in common but anchors
  Items d = draw(5000, 1'000'000, random);
  for (std::size_t i = 0; i < d.size(); i += 10) d[i] = c[i];
  const auto matches = common_subsequence(c, d);
  expect_common(c, d, matches);
  EXPECT_GE(matches.size(), 500u);
}

TEST(LongestIncreasingTest, FindsPositions) {
  EXPECT_THAT(longest_increasing({}), IsEmpty());
  EXPECT_THAT(longest_increasing(std::vector<trace::Index>{3, 0, 1, 4, 2}), ElementsAre(1, 2, 4));
  EXPECT_THAT(longest_increasing(std::vector<trace::Index>{2, 1, 0}), testing::SizeIs(1));
}

}  // namespace
}  // namespace steptape::diff
