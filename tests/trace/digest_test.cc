#include "trace/digest.h"

#include <gtest/gtest.h>

#include <array>

namespace steptape::trace {
namespace {

TEST(DigestTest, IsXxh3Of128BitsWithSeedZero) {
  EXPECT_EQ(text_of(digest_of({})), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, EqualBytesHaveEqualDigests) {
  const std::array a{std::byte{1}, std::byte{2}};
  const std::array b{std::byte{1}, std::byte{2}};
  EXPECT_EQ(digest_of(a), digest_of(b));
}

TEST(DigestTest, OneBitChangesIt) {
  const std::array a{std::byte{1}};
  const std::array b{std::byte{0}};
  EXPECT_NE(digest_of(a), digest_of(b));
}

TEST(DigestTest, TextHasTheHighHalfFirst) {
  EXPECT_EQ(text_of(Digest{.low = 2, .high = 0xab}), "00000000000000ab0000000000000002");
}

}  // namespace
}  // namespace steptape::trace
