#include "trace/dtype.h"

#include <gtest/gtest.h>

#include "steptape/error.h"
#include "tests/trace/text/named_value.h"

namespace steptape::trace {
namespace {

TEST(DTypeTest, EveryNumberHasANameThatLeadsBack) {
  for (std::uint32_t number = 1; is_dtype(number); ++number) {
    const auto dtype = static_cast<DType>(number);
    EXPECT_EQ(dtype_of(name_of(dtype)), dtype);
    EXPECT_GT(bytes_of(dtype), 0u) << name_of(dtype);
  }
}

TEST(DTypeTest, NumbersEndWithTheLastEnumerator) {
  EXPECT_FALSE(is_dtype(0));
  EXPECT_TRUE(is_dtype(static_cast<std::uint32_t>(DType::kComplex32)));
  EXPECT_FALSE(is_dtype(static_cast<std::uint32_t>(DType::kComplex32) + 1));
}

TEST(DTypeTest, SizesAreThoseOfPyTorch) {
  EXPECT_EQ(bytes_of(DType::kBFloat16), 2u);
  EXPECT_EQ(bytes_of(DType::kInt64), 8u);
  EXPECT_EQ(bytes_of(DType::kComplex128), 16u);
  EXPECT_EQ(bytes_of(DType::kFloat8E4M3FN), 1u);
}

TEST(DTypeTest, AnUnknownNameIsAnInvalidArgument) { EXPECT_THROW(dtype_of("float33"), Error); }

TEST(DeviceTest, TextLeadsBack) {
  for (const Device device : {Device{}, Device{DeviceKind::kCuda, 1}, Device{DeviceKind::kMeta, 0},
                              Device{DeviceKind::kOther, 2}}) {
    EXPECT_EQ(device_named(text_of(device)), device) << text_of(device);
  }
}

TEST(DeviceTest, TheCpuNeedsNoIndex) { EXPECT_EQ(text_of(Device{}), "cpu"); }

TEST(DeviceTest, WhatNamesNoDeviceIsAnInvalidArgument) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cpu:99999999999"}) {
    EXPECT_THROW(device_named(text), Error) << text;
  }
}

}  // namespace
}  // namespace steptape::trace
