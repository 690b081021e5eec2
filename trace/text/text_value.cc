#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "trace/text/text_parts.h"

namespace steptape::trace {
namespace {

/// The shortest that reads back: two of them are equal only where the bits are.
std::string decimal_of(Real real) {
  const double value = real.value;
  if (std::isnan(value)) return fmt::format("nan({:016x})", std::bit_cast<std::uint64_t>(value));
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string decimal = fmt::format("{}", value);
  if (decimal.find_first_of(".e") == std::string::npos) decimal += ".0";
  return decimal;
}

std::string print_real(Real real) {
  const double value = real.value;
  if (!std::isfinite(value)) return decimal_of(real);
  char digits[64];
  const char* end =
      std::to_chars(digits, std::end(digits), std::fabs(value), std::chars_format::hex).ptr;
  const std::string_view hex(digits, static_cast<std::size_t>(end - digits));
  return fmt::format("{}0x{} ({})", std::signbit(value) ? "-" : "", hex, decimal_of(real));
}

struct ValuePrinter {
  std::string (*print)(Real) = print_real;

  std::string operator()(None) const { return "none"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(Real value) const { return print(value); }
  std::string operator()(const Complex& value) const {
    return fmt::format("complex({}, {})", print(value.real), print(value.imag));
  }
  std::string operator()(const std::string& value) const { return in_quotes(value); }
  std::string operator()(const Device& value) const {
    return fmt::format("device({})", text_of(value));
  }
  std::string operator()(TensorRef value) const {
    return value.id == kNoTensor ? "undefined" : fmt::format("t{}", value.id);
  }
  std::string operator()(const GeneratorRef& value) const {
    return fmt::format("generator({})", in_quotes(value.path));
  }
  std::string operator()(const Opaque& value) const {
    return fmt::format("opaque({})", in_quotes(value.type));
  }
  std::string operator()(const IntList& value) const {
    return fmt::format("[{}]", fmt::join(value, ", "));
  }
  std::string operator()(const List& value) const {
    std::string text = "{";
    for (std::size_t i = 0; i < value.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::visit(*this, value[i].data);
    }
    return text + "}";
  }
};

/// Whether the C1 control character stands there that UTF-8 writes as c2 80 to c2 9f: they move the
/// cursor of some terminals.
bool is_c1(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]) == 0xc2 && i + 1 < text.size() &&
         static_cast<unsigned char>(text[i + 1]) < 0xa0;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = is_c1(text, i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c1) {
      out += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else {
      out += text[i];
    }
  }
  return out + '"';
}

std::string on_one_line(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = is_c1(text, i);
    if (c1) ++i;
    out += c < 0x20 || c == 0x7f || c1 ? ' ' : static_cast<char>(c);
  }
  return out;
}

std::string hex_of(const std::vector<std::byte>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "x";
  text.reserve(1 + 2 * bytes.size());
  for (std::byte byte : bytes) {
    const auto number = std::to_integer<unsigned>(byte);
    text += kDigits[number >> 4];
    text += kDigits[number & 15];
  }
  return text;
}

bool is_operator_word(std::string_view word) noexcept {
  auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':' || c == '.';
  };
  return word.find("::") != std::string_view::npos && std::ranges::all_of(word, fits);
}

std::string print_value(const Value& value) { return std::visit(ValuePrinter(), value.data); }

std::string words_of(const Value& value) {
  return std::visit(ValuePrinter{decimal_of}, value.data);
}

}  // namespace steptape::trace
