#include "replayer/runtime/cuda/plan/parameter_slots.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "replayer/runtime/cuda/plan/conversion.h"
#include "steptape/error.h"

namespace steptape::tests {
namespace {

using replayer::cuda::Conversion;
using replayer::cuda::Domain;
using replayer::cuda::kConversions;
using replayer::cuda::KernelImage;
using replayer::cuda::ParameterSample;
using replayer::cuda::ParameterSlots;
using replayer::cuda::sample_numbers;
using replayer::cuda::Slot;
using replayer::cuda::SlotSearch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Numbers = std::vector<double>;
using Bytes = std::vector<std::byte>;

constexpr const void* kKernel = "a kernel";

/// A kernel's parameters, as a compiler lays out a struct.
struct Layout {
  Bytes bytes;

  template <typename T>
  Layout& add(T value) {
    bytes.resize((bytes.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof(T));
    std::memcpy(bytes.data() + at, &value, sizeof(T));
    return *this;
  }
};

template <typename T>
Bytes bytes_with(T value) {
  return Layout().add(value).bytes;
}

KernelImage kernel(std::vector<Bytes> parameters) {
  KernelImage image;
  image.function = kKernel;
  image.grid = {8, 1, 1};
  image.block = {128, 1, 1};
  image.parameters = std::move(parameters);
  return image;
}

/// What an op launches for its numbers; `call` counts captures, for what differs between them.
using Op = std::function<std::vector<KernelImage>(const Numbers& numbers, int call)>;

/// An op of one kernel with one parameter.
Op op_of(const std::function<Bytes(const Numbers&)>& parameter) {
  return [parameter](const Numbers& numbers, int) {
    return std::vector<KernelImage>{kernel({parameter(numbers)})};
  };
}

SlotSearch find(const Op& op, const std::vector<Numbers>& rows) {
  std::vector<ParameterSample> samples;
  for (const Numbers& row : rows) {
    samples.push_back({row, op(row, static_cast<int>(samples.size()))});
  }
  return ParameterSlots::find(samples);
}

SlotSearch learn(const Op& op, const Numbers& recorded, Domain domain = Domain::kReal) {
  return find(op, sample_numbers(recorded, std::vector<Domain>(recorded.size(), domain)));
}

ParameterSlots learned(const Op& op, const Numbers& recorded, Domain domain = Domain::kReal) {
  SlotSearch search = learn(op, recorded, domain);
  EXPECT_EQ(search.reason, "");
  return search.slots.value_or(ParameterSlots());
}

/// Puts `numbers` into a capture of `recorded`, and compares with a capture of `numbers`.
void expect_as_captured(const ParameterSlots& slots, const Op& op, const Numbers& recorded,
                        const Numbers& numbers) {
  std::vector<KernelImage> nodes = op(recorded, 0);
  slots.put(numbers, nodes);
  const std::vector<KernelImage> captured = op(numbers, 0);
  ASSERT_EQ(nodes.size(), captured.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i].parameters, captured[i].parameters) << "of kernel " << i;
  }
}

std::string objection(const ParameterSlots& slots, const Numbers& numbers) {
  const auto objection = slots.objection(numbers);
  return objection ? objection->why : "";
}

/// What ATen computes on the host, written down a second time.
Bytes as_aten(double x, Conversion conversion) {
  switch (conversion) {
    case Conversion::kFloat32:
      return bytes_with(static_cast<float>(x));
    case Conversion::kFloat32Negated:
      return bytes_with(static_cast<float>(-x));
    case Conversion::kFloat32Reciprocal:
      return bytes_with(1.0F / static_cast<float>(x));
    case Conversion::kFloat32OfReciprocal:
      return bytes_with(static_cast<float>(1.0 / x));
    case Conversion::kFloat32OneMinus:
      return bytes_with(1.0F - static_cast<float>(x));
    case Conversion::kFloat32OfOneMinus:
      return bytes_with(static_cast<float>(1.0 - x));
    case Conversion::kFloat32OfFloat16:
      return bytes_with(static_cast<float>(static_cast<c10::Half>(x)));
    case Conversion::kFloat64:
      return bytes_with(x);
    case Conversion::kFloat64Negated:
      return bytes_with(-x);
    case Conversion::kFloat64Reciprocal:
      return bytes_with(1.0 / x);
    case Conversion::kFloat64OneMinus:
      return bytes_with(1.0 - x);
    case Conversion::kFloat64OfFloat32:
      return bytes_with(static_cast<double>(static_cast<float>(x)));
    case Conversion::kBFloat16:
      return bytes_with(static_cast<c10::BFloat16>(x));
    case Conversion::kBFloat16Negated:
      return bytes_with(static_cast<c10::BFloat16>(-x));
    case Conversion::kFloat16:
      return bytes_with(static_cast<c10::Half>(x));
    case Conversion::kFloat16Negated:
      return bytes_with(static_cast<c10::Half>(-x));
    case Conversion::kInt32:
      return bytes_with(static_cast<std::int32_t>(x));
    case Conversion::kInt32Negated:
      return bytes_with(-static_cast<std::int32_t>(x));
    case Conversion::kInt64:
      return bytes_with(static_cast<std::int64_t>(x));
    case Conversion::kInt64Negated:
      return bytes_with(-static_cast<std::int64_t>(x));
    case Conversion::kInt16:
      return bytes_with(static_cast<std::int16_t>(x));
    case Conversion::kInt8:
      return bytes_with(static_cast<std::int8_t>(x));
    case Conversion::kUInt8:
      return bytes_with(static_cast<std::uint8_t>(x));
  }
  return {};
}

bool is_integer(Conversion conversion) { return conversion >= Conversion::kInt32; }

/// Behind something that is not zero, so that a narrow slot is not taken for a wide one.
Op op_with(Conversion conversion) {
  return op_of([conversion](const Numbers& numbers) {
    Bytes bytes(8, std::byte{0x5a});
    const Bytes given = as_aten(numbers[0], conversion);
    bytes.insert(bytes.end(), given.begin(), given.end());
    bytes.resize(16, std::byte{0x5a});
    return bytes;
  });
}

class ConversionTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  Conversion conversion() const { return static_cast<Conversion>(GetParam()); }
};

TEST_P(ConversionTest, IsFoundAndPutAtNumbersThatWereNotSampled) {
  const Op op = op_with(conversion());
  const double recorded = is_integer(conversion()) ? 37 : 0.00137;
  const Domain domain = is_integer(conversion()) ? Domain::kIntegral : Domain::kReal;
  const ParameterSlots slots = learned(op, {recorded}, domain);
  EXPECT_THAT(slots.slots(), SizeIs(1));
  EXPECT_THAT(slots.unused(), IsEmpty());
  std::mt19937_64 random(3);
  int put = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value = is_integer(conversion())
                             ? static_cast<double>(4 + random() % 120)
                             : std::ldexp(1.0 + static_cast<double>(random() >> 11) * 0x1p-53,
                                          -1 - static_cast<int>(random() % 12));
    if (!objection(slots, {value}).empty()) continue;
    ++put;
    ASSERT_NO_FATAL_FAILURE(expect_as_captured(slots, op, {recorded}, {value})) << value;
  }
  EXPECT_GT(put, 900);
}

/// Those of real numbers.
class RealConversionTest : public ConversionTest {};

TEST_P(RealConversionTest, IsToldFromAllOthers) {
  for (const double recorded : {0.00137, 0.31, 0.9, 1.7, -0.02, 24.5}) {
    const ParameterSlots slots = learned(op_with(conversion()), {recorded});
    EXPECT_THAT(slots.slots(), ElementsAre(Slot{0, 0, 8, 0, conversion()})) << recorded;
  }
}

TEST_P(ConversionTest, GivesTheBitsThatATenComputes) {
  const double x = is_integer(conversion()) ? 113 : 0.7318206489;
  const Bytes expected = as_aten(x, conversion());
  const auto bits = replayer::cuda::bits_of(x, conversion());
  ASSERT_TRUE(bits.has_value());
  ASSERT_EQ(expected.size(), replayer::cuda::bytes_of(conversion()));
  EXPECT_EQ(std::memcmp(&*bits, expected.data(), expected.size()), 0);
}

std::string name_of_case(const ::testing::TestParamInfo<std::size_t>& info) {
  return "Number" + std::to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, ConversionTest, ::testing::Range(std::size_t{0}, kConversions),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, RealConversionTest,
                         ::testing::Range(std::size_t{0},
                                          static_cast<std::size_t>(Conversion::kInt32)),
                         name_of_case);

TEST(ConversionNamesTest, AreAllDifferent) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kConversions; ++i) {
    names.insert(replayer::cuda::name_of(static_cast<Conversion>(i)));
  }
  EXPECT_EQ(names.size(), kConversions);
}

TEST(ConversionRangeTest, NumbersOutsideOfAnIntegersRangeHaveNoBits) {
  using replayer::cuda::bits_of;
  EXPECT_FALSE(bits_of(2147483648.0, Conversion::kInt32));
  EXPECT_TRUE(bits_of(-2147483648.0, Conversion::kInt32));
  EXPECT_FALSE(bits_of(0x1p63, Conversion::kInt64));
  EXPECT_TRUE(bits_of(-0x1p63, Conversion::kInt64));
  EXPECT_FALSE(bits_of(-1, Conversion::kUInt8));
  EXPECT_FALSE(bits_of(128, Conversion::kInt8));
  EXPECT_FALSE(bits_of(std::numeric_limits<double>::quiet_NaN(), Conversion::kInt32));
}

TEST(ParameterSlotsTest, AdamsNumbersAreFoundWhereTheyEnter) {
  // addcdiv_(value), div by a host number, and add of eps: three kernels.
  const Op op = [](const Numbers& numbers, int) {
    const auto step_size = static_cast<float>(numbers[0]);
    const float inverse = 1.0F / static_cast<float>(numbers[1]);
    return std::vector<KernelImage>{
        kernel({bytes_with(std::int64_t{4096}), Layout().add(std::int32_t{1}).add(inverse).bytes}),
        kernel({Layout().add(1.0F).add(1e-8F).bytes}), kernel({bytes_with(step_size)})};
  };
  const ParameterSlots slots = learned(op, {-0.001, 0.0316});
  EXPECT_THAT(slots.slots(), ElementsAre(Slot{0, 1, 4, 1, Conversion::kFloat32Reciprocal},
                                         Slot{2, 0, 0, 0, Conversion::kFloat32}));
  std::vector<KernelImage> nodes = op({-0.001, 0.0316}, 0);
  EXPECT_THAT(slots.put(Numbers{-0.001, 0.0447}, nodes), ElementsAre(0));
  EXPECT_THAT(slots.put(Numbers{-0.0009, 0.0447}, nodes), ElementsAre(2));
  EXPECT_THAT(slots.put(Numbers{-0.0009, 0.0447}, nodes), IsEmpty());
  expect_as_captured(slots, op, {-0.001, 0.0316}, {-0.0009, 0.0447});
}

TEST(ParameterSlotsTest, OneNumberMayEnterTwiceInTwoWays) {
  const Op op = op_of([](const Numbers& numbers) {  // floor_divide by a host number
    const auto b = static_cast<float>(numbers[0]);
    return Layout().add(b).add(1.0F / b).bytes;
  });
  const ParameterSlots slots = learned(op, {0.3});
  EXPECT_THAT(slots.slots(), ElementsAre(Slot{0, 0, 0, 0, Conversion::kFloat32},
                                         Slot{0, 0, 4, 0, Conversion::kFloat32Reciprocal}));
  std::vector<KernelImage> nodes = op({0.3}, 0);
  EXPECT_THAT(slots.put(Numbers{0.4}, nodes), ElementsAre(0));
}

TEST(ParameterSlotsTest, EqualNumbersOfAForeachOpAreToldApart) {
  const Op op = op_of([](const Numbers& numbers) {
    Layout layout;
    for (const double number : numbers) layout.add(static_cast<float>(number));
    return layout.bytes;
  });
  const Numbers recorded(40, 0.001);
  const ParameterSlots slots = learned(op, recorded);
  ASSERT_THAT(slots.slots(), SizeIs(40));
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(slots.slots()[i].number, i);
}

TEST(ParameterSlotsTest, BytesThatNoConversionExplainsAreAReason) {
  const Op op = op_of(
      [](const Numbers& numbers) { return bytes_with(std::sqrt(static_cast<float>(numbers[0]))); });
  const SlotSearch search = learn(op, {0.3});
  EXPECT_FALSE(search.slots);
  EXPECT_THAT(search.reason, HasSubstr("of parameter 0 of kernel 0 differ"));
  EXPECT_THAT(search.reason, HasSubstr("depend on number 0"));
}

TEST(ParameterSlotsTest, AProductOfTwoNumbersIsAReason) {
  const Op op = op_of([](const Numbers& numbers) {
    return Layout()
        .add(static_cast<float>(numbers[0]))
        .add(static_cast<float>(numbers[0] * numbers[1]))
        .bytes;
  });
  const SlotSearch search = learn(op, {0.3, 0.7});
  EXPECT_FALSE(search.slots);
  EXPECT_THAT(search.reason, HasSubstr("depend on number 0 and on number 1"));
}

TEST(ParameterSlotsTest, AHalfExplainedWordIsAReason) {
  const Op op = op_of([](const Numbers& numbers) {
    const auto x = static_cast<float>(numbers[0]);
    return Layout().add(x).add(x * 3.0F).bytes;
  });
  EXPECT_THAT(learn(op, {0.3}).reason, HasSubstr("bytes 4 to 6"));
}

TEST(ParameterSlotsTest, OtherLaunchesAreAReason) {
  const auto varied = [](const std::function<void(KernelImage&)>& vary) {
    const Op op = [vary](const Numbers& numbers, int) {
      std::vector<KernelImage> nodes = {kernel({bytes_with(static_cast<float>(numbers[0]))})};
      if (numbers[0] != 0.3) vary(nodes[0]);
      return nodes;
    };
    return learn(op, {0.3}).reason;
  };
  EXPECT_EQ(varied([](KernelImage&) {}), "");
  EXPECT_THAT(varied([](KernelImage& node) { node.function = "another"; }),
              HasSubstr("another kernel 0"));
  EXPECT_THAT(varied([](KernelImage& node) { node.grid[1] = 2; }), HasSubstr("another grid"));
  EXPECT_THAT(varied([](KernelImage& node) { node.block[0] = 64; }), HasSubstr("another grid"));
  EXPECT_THAT(varied([](KernelImage& node) { node.shared_bytes = 64; }), HasSubstr("another grid"));
  EXPECT_THAT(varied([](KernelImage& node) { node.parameters[0].resize(8); }),
              HasSubstr("other parameters"));
  EXPECT_THAT(varied([](KernelImage& node) { node.parameters.emplace_back(); }),
              HasSubstr("other parameters"));
}

TEST(ParameterSlotsTest, OtherCountsOfKernelsAreAReason) {
  const Op op = [](const Numbers& numbers, int) {
    return std::vector<KernelImage>(numbers[0] == 0.3 ? 1 : 2, kernel({}));
  };
  EXPECT_EQ(learn(op, {0.3}).reason, "other numbers launch 2 kernels in place of 1");
}

TEST(ParameterSlotsTest, ANumberThatNoByteDependsOnIsUnused) {
  const Op op =
      op_of([](const Numbers& numbers) { return bytes_with(static_cast<float>(numbers[1])); });
  EXPECT_THAT(learned(op, {0.3, 0.3, 0.3}).unused(), ElementsAre(0, 2));
}

TEST(ParameterSlotsTest, AnOpWithoutKernelsUsesNothing) {
  const Op op = [](const Numbers&, int) { return std::vector<KernelImage>(); };
  EXPECT_THAT(learned(op, {0.3}).unused(), ElementsAre(0));
}

TEST(ParameterSlotsTest, ANumberThatIsNotFiniteIsUnused) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Op op =
      op_of([](const Numbers& numbers) { return bytes_with(static_cast<float>(numbers[0])); });
  const ParameterSlots slots = learned(op, {infinity});
  EXPECT_THAT(slots.unused(), ElementsAre(0));
  EXPECT_EQ(objection(slots, {infinity}), "");
  EXPECT_NE(objection(slots, {0.3}), "");
}

// What differs though the numbers are equal.

/// The address of a temporary in capture `call`, and the number.
Op op_with_address(const std::function<std::uint64_t(int call)>& address) {
  return [address](const Numbers& numbers, int call) {
    return std::vector<KernelImage>{
        kernel({Layout().add(address(call)).add(static_cast<float>(numbers[0])).bytes})};
  };
}

TEST(ParameterSlotsTest, AddressesOfTemporariesAreLeftAlone) {
  const Op op = op_with_address(
      [](int call) { return 0x7f1200000000U + 512 * static_cast<std::uint64_t>(call); });
  const ParameterSlots slots = learned(op, {0.3});
  EXPECT_THAT(slots.slots(), ElementsAre(Slot{0, 0, 8, 0, Conversion::kFloat32}));
  std::vector<KernelImage> nodes = op({0.3}, 77);
  slots.put(Numbers{0.4}, nodes);
  EXPECT_EQ(nodes[0].parameters, op({0.4}, 77)[0].parameters);
}

TEST(ParameterSlotsTest, AnAddressMayDifferInMoreBytesThanTheEqualCapturesShow) {
  const Op op = op_with_address([](int call) {
    return 0x7f1200000000U + (std::uint64_t{512} << (call == 0 ? 0 : 2 * call));
  });
  EXPECT_THAT(learned(op, {0.3}).slots(), SizeIs(1));
}

// Every other capture has the recorded numbers.
TEST(ParameterSlotsTest, AnAddressThatEqualCapturesShareIsAReasonWhenItMoves) {
  const Op op =
      op_with_address([](int call) { return 0x7f1200000000U + (call % 2 == 0 ? 0 : 512); });
  EXPECT_THAT(learn(op, {0.3}).reason, HasSubstr("bytes 1 to 1 of parameter 0"));
}

TEST(ParameterSlotsTest, MoreEqualCapturesShowMoreNoise) {
  const Op op =
      op_with_address([](int call) { return 0x7f1200000000U + (call % 2 == 0 ? 0 : 512); });
  std::vector<Numbers> rows = sample_numbers(Numbers{0.3}, std::vector{Domain::kReal});
  rows.push_back(rows.front());
  EXPECT_THAT(find(op, rows).slots.value().slots(), SizeIs(1));
}

TEST(ParameterSlotsTest, ASlotDoesNotReachIntoNoise) {
  const Op op = [](const Numbers& numbers, int call) {
    auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(numbers[0]));
    if (call == 2) bits ^= 1;
    return std::vector<KernelImage>{kernel({bytes_with(bits)})};
  };
  EXPECT_FALSE(learn(op, {0.3}).slots);
}

TEST(ParameterSlotsTest, NoiseBesideANumberIsNoAddress) {
  // Garbage in padding before an integer that looks like the upper half of an address.
  const Op op = [](const Numbers& numbers, int call) {
    const auto product = static_cast<std::int32_t>(numbers[0] * numbers[1]);
    return std::vector<KernelImage>{kernel({Layout().add(call).add(product).bytes})};
  };
  EXPECT_FALSE(learn(op, {300, 5}, Domain::kIntegral).slots);
}

TEST(ParameterSlotsTest, GarbageInPaddingIsLeftAlone) {
  const Op op = [](const Numbers& numbers, int call) {
    return std::vector<KernelImage>{kernel(
        {Layout().add(std::uint32_t(call * 77777)).add(static_cast<float>(numbers[0])).bytes})};
  };
  EXPECT_THAT(learned(op, {0.3}).slots(), ElementsAre(Slot{0, 0, 4, 0, Conversion::kFloat32}));
}

// What samples cannot tell apart.

TEST(ParameterSlotsTest, NumbersThatVaryTogetherAreAReason) {
  const Op op =
      op_of([](const Numbers& numbers) { return bytes_with(static_cast<float>(numbers[0])); });
  EXPECT_THAT(find(op, {{0.3, 0.3}, {0.4, 0.4}, {0.7, 0.7}}).reason,
              HasSubstr("numbers 0 and 1 cannot be told apart"));
}

TEST(ParameterSlotsTest, ReciprocalsOfFloatsAreOneUntilANumberTellsThemApart) {
  const auto op = op_of(
      [](const Numbers& numbers) { return bytes_with(1.0F / static_cast<float>(numbers[0])); });
  const ParameterSlots slots = find(op, {{0.25}, {0.25}, {0.75}, {1.25}}).slots.value();
  EXPECT_EQ(objection(slots, {0.625}), "");
  std::mt19937_64 random(5);
  int objections = 0;
  for (int i = 0; i < 100; ++i) {
    const double value = 0.5 + static_cast<double>(random() >> 11) * 0x1p-54;
    const bool differ = static_cast<float>(1.0 / value) != 1.0F / static_cast<float>(value);
    const std::string why = objection(slots, {value});
    EXPECT_EQ(!why.empty(), differ) << why;
    objections += differ ? 1 : 0;
  }
  EXPECT_GT(objections, 10);
}

TEST(ParameterSlotsTest, SampledNumbersTellTheReciprocalsApart) {
  for (const double recorded : {1e-8, 0.001, 0.0316, 0.9, 1.0, 7.25, 65536.0}) {
    for (const Conversion conversion :
         {Conversion::kFloat32Reciprocal, Conversion::kFloat32OfReciprocal}) {
      const ParameterSlots slots = learned(op_with(conversion), {recorded});
      EXPECT_THAT(slots.slots(), ElementsAre(Slot{0, 0, 8, 0, conversion})) << recorded;
    }
  }
}

TEST(ParameterSlotsTest, IntegersInFloatsAreCertainAsFarAsFloatsAgree) {
  const Op op =
      op_of([](const Numbers& numbers) { return bytes_with(static_cast<float>(numbers[0])); });
  const ParameterSlots slots = learned(op, {7}, Domain::kIntegral);
  for (double x = 4; x < 256; ++x) {
    ASSERT_EQ(objection(slots, {x}), "");
    expect_as_captured(slots, op, {7}, {x});
  }
  EXPECT_THAT(objection(slots, {257}), HasSubstr("which no capture told apart"));
  EXPECT_EQ(objection(learned(op, {70001}, Domain::kIntegral), {257}), "");
}

TEST(ParameterSlotsTest, AWideIntegerGivesWayWhereItsWidthIsUnknown) {
  const Op op = op_of(
      [](const Numbers& numbers) { return bytes_with(static_cast<std::int64_t>(numbers[0])); });
  const ParameterSlots slots = learned(op, {7}, Domain::kIntegral);
  EXPECT_EQ(objection(slots, {100000}), "");
  expect_as_captured(slots, op, {7}, {100000});
  EXPECT_NE(objection(slots, {0x1p31}), "");
  const ParameterSlots wide = learned(op, {0x1p33}, Domain::kIntegral);
  EXPECT_EQ(objection(wide, {0x1p40}), "");
  expect_as_captured(wide, op, {0x1p33}, {0x1p40});
}

// Numbers that a launch may not take.

Op float_op() {
  return op_of([](const Numbers& numbers) { return bytes_with(static_cast<float>(numbers[0])); });
}

TEST(ParameterSlotsTest, ObjectsToAnotherSign) {
  const ParameterSlots slots = learned(float_op(), {0.3});
  EXPECT_EQ(objection(slots, {0.01}), "");
  EXPECT_THAT(objection(slots, {-0.01}), HasSubstr("other sign"));
}

TEST(ParameterSlotsTest, ObjectsToNumbersThatATenMayTakeDifferently) {
  const ParameterSlots slots = learned(float_op(), {0.3});
  for (const double special :
       {0.0, -0.0, 0.5, 1.0, 2.0, 3.0, -1.0, std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(objection(slots, {special}), HasSubstr("no capture was made with")) << special;
  }
}

TEST(ParameterSlotsTest, TakesSuchANumberWhereItWasRecorded) {
  for (const double special : {0.0, 0.5, 1.0, 2.0}) {
    const ParameterSlots slots = learned(float_op(), {special});
    EXPECT_EQ(objection(slots, {special}), "");
    EXPECT_EQ(objection(slots, {0.7}), "");
    expect_as_captured(slots, float_op(), {0.7}, {special});
  }
}

TEST(ParameterSlotsTest, ObjectsToWhatDoesNotFitTheSlot) {
  EXPECT_THAT(objection(learned(float_op(), {0.3}), {1e39}), HasSubstr("does not exist"));
  EXPECT_THAT(objection(learned(op_with(Conversion::kFloat16), {0.3}), {70000}),
              HasSubstr("does not exist"));
  EXPECT_THAT(objection(learned(op_with(Conversion::kInt16), {3000}, Domain::kIntegral), {40000}),
              HasSubstr("does not exist"));
}

TEST(ParameterSlotsTest, ObjectsToWhatNoSampleCouldShow) {
  // Of so small an eps, 1 - eps is 1 in every sample.
  const Op op = op_of([](const Numbers& numbers) {
    const auto eps = static_cast<float>(numbers[0]);
    return Layout().add(eps).add(1.0F - eps).bytes;
  });
  const ParameterSlots slots = learned(op, {1e-9});
  EXPECT_THAT(slots.slots(), SizeIs(1));
  EXPECT_EQ(objection(slots, {2e-9}), "");
  EXPECT_THAT(objection(slots, {1e-3}), HasSubstr("no longer what it was in every capture"));
  EXPECT_EQ(objection(learned(op, {1e-3}), {1e-9}), "");
}

TEST(ParameterSlotsTest, AnObjectionNamesItsNumber) {
  const Op op = op_of([](const Numbers& numbers) {
    return Layout().add(static_cast<float>(numbers[0])).add(numbers[1]).bytes;
  });
  const auto objection = learned(op, {0.3, 0.3}).objection(Numbers{0.3, 0.0});
  ASSERT_TRUE(objection.has_value());
  EXPECT_EQ(objection->number, 1U);
}

TEST(ParameterSlotsTest, MisuseIsABug) {
  EXPECT_THROW(ParameterSlots::find({}), Error);
  EXPECT_THROW(find(float_op(), {{0.3}, {0.3, 0.4}}), Error);
  EXPECT_THROW(sample_numbers(Numbers{0.3}, {}), Error);
  const ParameterSlots slots = learned(float_op(), {0.3});
  EXPECT_THROW(slots.objection(Numbers{}), Error);
  std::vector<KernelImage> none, narrow = {kernel({Bytes(2)})};
  EXPECT_THROW(slots.put(Numbers{0.3}, none), Error);
  EXPECT_THROW(slots.put(Numbers{0.3}, narrow), Error);
}

/// Any mixture of conversions and constants, with noise between them.
struct RandomOp {
  struct Field {
    enum class Kind { kNumber, kConstant, kAddress, kGarbage } kind;
    std::size_t number;
    Conversion conversion;
    std::uint64_t constant;
  };
  std::vector<std::vector<std::vector<Field>>> kernels;  ///< by kernel and parameter
  std::uint64_t garbage_seed;

  RandomOp(std::mt19937_64& random, std::size_t numbers) : garbage_seed(random()) {
    kernels.resize(1 + random() % 4);
    for (auto& parameters : kernels) {
      parameters.resize(1 + random() % 3);
      for (auto& fields : parameters) {
        for (std::size_t i = random() % 12; i > 0; --i) {
          const std::uint64_t kind = random() % 8;
          fields.push_back(
              {kind < 4   ? Field::Kind::kNumber
               : kind < 6 ? Field::Kind::kConstant
               : kind < 7 ? Field::Kind::kAddress
                          : Field::Kind::kGarbage,
               random() % numbers,
               static_cast<Conversion>(random() % static_cast<std::size_t>(Conversion::kInt32)),
               random()});
        }
      }
    }
  }

  std::vector<KernelImage> operator()(const Numbers& numbers, int call) const {
    std::mt19937_64 random(garbage_seed + static_cast<std::uint64_t>(call));
    std::vector<KernelImage> nodes;
    for (const auto& parameters : kernels) {
      std::vector<Bytes> blocks;
      for (const auto& fields : parameters) {
        Layout layout;
        for (const Field& field : fields) add(layout, field, numbers, random);
        blocks.push_back(layout.bytes);
      }
      nodes.push_back(kernel(std::move(blocks)));
    }
    return nodes;
  }

  static void add(Layout& layout, const Field& field, const Numbers& numbers,
                  std::mt19937_64& random) {
    switch (field.kind) {
      case Field::Kind::kNumber: {
        const Bytes given = as_aten(numbers[field.number], field.conversion);
        while (layout.bytes.size() % given.size() != 0) layout.bytes.emplace_back();
        layout.bytes.insert(layout.bytes.end(), given.begin(), given.end());
        break;
      }
      case Field::Kind::kConstant:
        layout.add(static_cast<std::uint32_t>(field.constant));
        break;
      case Field::Kind::kAddress:
        layout.add(0x7f0000000000U + (field.constant % 64 << 32) + random() % 0x800000 * 512);
        break;
      case Field::Kind::kGarbage:
        layout.add(static_cast<std::uint8_t>(random()));
        break;
    }
  }

  std::set<std::size_t> used() const {
    std::set<std::size_t> used;
    for (const auto& parameters : kernels) {
      for (const auto& fields : parameters) {
        for (const Field& field : fields) {
          if (field.kind == Field::Kind::kNumber) used.insert(field.number);
        }
      }
    }
    return used;
  }
};

TEST(ParameterSlotsPropertyTest, WhatIsLearnedFromAnyMixtureHoldsForOtherNumbers) {
  std::mt19937_64 random(11);
  int found = 0, put = 0;
  for (int round = 0; round < 150; ++round) {
    Numbers recorded;
    for (std::size_t n = 1 + random() % 5; n > 0; --n) {
      const double size = 0.004 + static_cast<double>(random() % 100000) * 1e-5;
      recorded.push_back(random() % 2 == 0 ? size : -size);
    }
    const RandomOp op(random, recorded.size());
    std::vector<Numbers> rows =
        sample_numbers(recorded, std::vector<Domain>(recorded.size(), Domain::kReal));
    // A byte of garbage is the same in two captures one time in 256: more captures to show it.
    for (int i = 0; i < 4; ++i) rows.push_back(recorded);
    const SlotSearch search = find(op, rows);
    ASSERT_EQ(search.reason, "") << "in round " << round;
    ++found;
    const std::set<std::size_t> used = op.used();
    EXPECT_EQ(used.size() + search.slots->unused().size(), recorded.size());
    for (int i = 0; i < 20; ++i) {
      Numbers numbers = recorded;
      for (double& number : numbers) {
        number *= 0.6 + static_cast<double>(random() >> 11) * 0x1p-53;
      }
      if (!objection(*search.slots, numbers).empty()) continue;
      ++put;
      // Noise of one capture, so that all else must be equal.
      std::vector<KernelImage> nodes = op(recorded, 1000);
      const std::vector<KernelImage> expected = op(numbers, 1000);
      std::vector<std::size_t> changed;
      for (std::size_t k = 0; k < nodes.size(); ++k) {
        if (nodes[k].parameters != expected[k].parameters) changed.push_back(k);
      }
      EXPECT_EQ(search.slots->put(numbers, nodes), changed);
      for (std::size_t k = 0; k < nodes.size(); ++k) {
        ASSERT_EQ(nodes[k].parameters, expected[k].parameters) << "in round " << round;
      }
    }
  }
  EXPECT_EQ(found, 150);
  EXPECT_GT(put, 1500);
}

TEST(ParameterSlotsPropertyTest, OneUnexplainedFieldAnywhereIsFound) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 100; ++round) {
    const Numbers recorded = {0.37, -1.9, 0.0021};
    const RandomOp plain(random, recorded.size());
    const std::size_t k = random() % plain.kernels.size();
    const Op op = [&](const Numbers& numbers, int call) {
      std::vector<KernelImage> nodes = plain(numbers, call);
      Layout layout{nodes[k].parameters[0]};
      nodes[k].parameters[0] = layout.add(static_cast<float>(numbers[0] * numbers[2])).bytes;
      return nodes;
    };
    EXPECT_FALSE(learn(op, recorded).slots) << "in round " << round;
  }
}

// Which numbers are sampled.

std::vector<Numbers> sampled(const Numbers& recorded, Domain domain = Domain::kReal) {
  return sample_numbers(recorded, std::vector<Domain>(recorded.size(), domain));
}

TEST(SampleNumbersTest, VariesEachAloneAndAllTogether) {
  const Numbers recorded = {0.1, 0.1, -3.7};
  const std::vector<Numbers> rows = sampled(recorded);
  ASSERT_EQ(rows.size(), 2 * (2U * 3 + 3) + 1);
  for (std::size_t i = 0; i < rows.size(); i += 2) EXPECT_EQ(rows[i], recorded);
  for (std::size_t n = 0; n < 3; ++n) {
    for (std::size_t i = 0; i < 2; ++i) {
      Numbers row = rows[1 + 2 * (2 * n + i)];
      EXPECT_NE(row[n], recorded[n]);
      row[n] = recorded[n];
      EXPECT_EQ(row, recorded);
    }
  }
  for (std::size_t i = 13; i < 19; i += 2) {
    for (std::size_t n = 0; n < 3; ++n) EXPECT_NE(rows[i][n], recorded[n]);
  }
}

TEST(SampleNumbersTest, TakesNoValueOfANumberTwice) {
  const std::vector<Numbers> rows = sampled({0.1});
  std::set<double> values;
  for (const Numbers& row : rows) values.insert(row[0]);
  EXPECT_EQ(values.size(), 6U);
}

TEST(SampleNumbersTest, GivesEqualNumbersOtherValues) {
  const std::vector<Numbers> rows = sampled({0.1, 0.1});
  for (std::size_t i = 9; i < 15; i += 2) EXPECT_NE(rows[i][0], rows[i][1]);
}

TEST(SampleNumbersTest, StaysAboutAsLargeAndOnTheSameSide) {
  for (const double recorded :
       {1e-300, 1e-8, 0.3, 0.5, 0.999, 1.0, 1.001, 2.0, 5e4, 7e4, 3e38, 1e300}) {
    for (const double sign : {1.0, -1.0}) {
      for (const Numbers& row : sampled({sign * recorded})) {
        const double size = row[0] * sign;
        EXPECT_GE(size, recorded / 2);
        EXPECT_LE(size, recorded * 2);
        EXPECT_TRUE(recorded > 1 ? size > 1 : size <= 1) << size;
        EXPECT_EQ(std::isinf(static_cast<float>(size)), std::isinf(static_cast<float>(recorded)));
        if (recorded <= 65504) {
          EXPECT_LE(size, 65504);
        }
        if (size == recorded) continue;
        for (const double special : {0.0, 0.5, 1.0, 2.0, 3.0}) EXPECT_NE(size, special);
      }
    }
  }
}

TEST(SampleNumbersTest, IntegersStayIntegersAndFitTheSameTypes) {
  for (const double recorded :
       {1.0, 2.0, 4.0, 7.0, 100.0, 127.0, 200.0, 3e4, 2147483647.0, 0x1p53}) {
    for (const double sign : {1.0, -1.0}) {
      std::set<double> values;
      for (const Numbers& row : sampled({sign * recorded}, Domain::kIntegral)) {
        const double size = row[0] * sign;
        values.insert(size);
        EXPECT_EQ(size, std::floor(size));
        for (const double most : {127.0, 255.0, 32767.0, 2147483647.0, 0x1p53}) {
          if (recorded <= most) {
            EXPECT_LE(size, most);
          }
        }
        if (size != recorded) {
          EXPECT_GT(size, 3);
        }
      }
      EXPECT_EQ(values.size(), 6U) << recorded;
    }
  }
}

TEST(SampleNumbersTest, AZeroHasSmallOthersOfItsSign) {
  for (const double zero : {0.0, -0.0}) {
    const std::vector<Numbers> rows = sampled({zero});
    for (std::size_t i = 1; i < rows.size(); i += 2) {
      EXPECT_NE(rows[i][0], 0);
      EXPECT_LT(std::abs(rows[i][0]), 0.01);
      EXPECT_EQ(std::signbit(rows[i][0]), std::signbit(zero));
    }
  }
}

TEST(SampleNumbersTest, IsTheSameEachTime) { EXPECT_EQ(sampled({0.1, 7}), sampled({0.1, 7})); }

TEST(SampleNumbersTest, OfNoNumbersIsTheOpSevenTimes) { EXPECT_THAT(sampled({}), SizeIs(7)); }

}  // namespace
}  // namespace steptape::tests
