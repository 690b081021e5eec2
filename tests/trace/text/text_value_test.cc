#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steptape/error.h"
#include "tests/trace/text/text_reader.h"
#include "trace/text/text.h"

namespace steptape::trace {
namespace {

Value read(std::string_view text) {
  TextReader reader(text);
  EXPECT_TRUE(reader.next_line());
  Value value = reader.take_value();
  reader.expect_end_of_line();
  return value;
}

struct Shown {
  Value value;
  std::string text;
};
void PrintTo(const Shown& shown, std::ostream* out) { *out << shown.value.data.index(); }

class ValueTextTest : public testing::TestWithParam<Shown> {};

TEST_P(ValueTextTest, IsShownSo) { EXPECT_EQ(print_value(GetParam().value), GetParam().text); }
TEST_P(ValueTextTest, IsReadBack) { EXPECT_EQ(read(GetParam().text), GetParam().value); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    EveryKind, ValueTextTest,
    testing::Values(
        Shown{{None()}, "none"}, Shown{{true}, "true"}, Shown{{false}, "false"},
        Shown{{std::int64_t{-12}}, "-12"},
        Shown{{std::numeric_limits<std::int64_t>::min()}, "-9223372036854775808"},
        Shown{{Real{0.1}}, "0x1.999999999999ap-4 (0.1)"}, Shown{{Real{1}}, "0x1p+0 (1.0)"},
        Shown{{Real{-0.0}}, "-0x0p+0 (-0.0)"}, Shown{{Real{kInfinity}}, "inf"},
        Shown{{Real{-kInfinity}}, "-inf"},
        Shown{{Real{std::bit_cast<double>(0x7ff8000000000001u)}}, "nan(7ff8000000000001)"},
        Shown{{Real{std::bit_cast<double>(0xfff8000000000000u)}}, "nan(fff8000000000000)"},
        Shown{{Real{5e-324}}, "0x0.0000000000001p-1022 (5e-324)"},
        Shown{{Complex{{1.5}, {-kInfinity}}}, "complex(0x1.8p+0 (1.5), -inf)"},
        Shown{{std::string("a \"b\"\n\t\\\x01 →#")}, R"("a \"b\"\n\t\\\x01 →#")"},
        Shown{{std::string("\xc2\x9b"
                           "2J")},
              "\"\\xc2\\x9b2J\""},
        Shown{{Device{DeviceKind::kCuda, 1}}, "device(cuda:1)"}, Shown{{TensorRef{3}}, "t3"},
        Shown{{TensorRef{}}, "undefined"},
        Shown{{GeneratorRef{"default"}}, "generator(\"default\")"},
        Shown{{Opaque{"Stream"}}, "opaque(\"Stream\")"}, Shown{{IntList{}}, "[]"},
        Shown{{IntList{1, -2}}, "[1, -2]"}, Shown{{List{}}, "{}"},
        Shown{{List{{TensorRef{1}}, {List{{None()}}}}}, "{t1, {none}}"}));

TEST(RealTextTest, EveryBitComesBack) {
  std::uint64_t bits = 88172645463325252u;
  for (int i = 0; i < 20000; ++i) {
    bits ^= bits << 13;
    bits ^= bits >> 7;
    bits ^= bits << 17;
    const Value value{Real{std::bit_cast<double>(bits)}};
    ASSERT_EQ(read(print_value(value)), value) << print_value(value);
  }
}

TEST(RealTextTest, DecimalAloneIsReadToo) { EXPECT_EQ(read("2.5e-3"), Value{Real{2.5e-3}}); }

TEST(RealTextTest, DecimalThatContradictsIsRefused) { EXPECT_THROW(read("0x1.8p+0 (1.4)"), Error); }

TEST(ListTextTest, DeepNestingIsRefusedBeforeTheStackEnds) {
  EXPECT_THROW(read(std::string(100000, '{')), Error);
}

TEST(StringTextTest, EveryByteComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(read(in_quotes(all)), Value{all});
}

}  // namespace
}  // namespace steptape::trace
