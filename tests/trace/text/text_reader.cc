#include "tests/trace/text/text_reader.h"

#include <fmt/format.h>

#include <charconv>

#include "steptape/error.h"
#include "tests/trace/text/named_value.h"
#include "trace/validate.h"

namespace steptape::trace {
namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_:.+-").find(c) != std::string_view::npos;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <typename Number>
bool read_number(std::string_view digits, Number& number, int base = 10) {
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, base);
  return error == std::errc() && stop == end;
}

bool read_real(std::string_view digits, double& real) {
  const bool negative = digits.starts_with('-');
  std::string_view magnitude = digits.substr(negative ? 1 : 0);
  auto format = std::chars_format::general;
  if (magnitude.starts_with("0x")) {
    magnitude.remove_prefix(2);
    format = std::chars_format::hex;
  }
  if (magnitude.starts_with('-')) return false;
  const char* end = magnitude.data() + magnitude.size();
  const auto [stop, error] = std::from_chars(magnitude.data(), end, real, format);
  if (negative) real = -real;
  return error == std::errc() && stop == end;
}

}  // namespace

bool TextReader::next_line() {
  while (!rest_.empty()) {
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    column_ = 0;
    if (!at_end_of_line()) return true;
  }
  return false;
}

void TextReader::skip_spaces() {
  while (column_ < line_.size() && (line_[column_] == ' ' || line_[column_] == '\r')) ++column_;
}

bool TextReader::at_end_of_line() {
  skip_spaces();
  return column_ >= line_.size() || line_[column_] == '#';
}

void TextReader::expect_end_of_line() {
  if (!at_end_of_line()) fail("the end of the line");
}

std::string_view TextReader::peek_word() const {
  std::size_t start = column_;
  while (start < line_.size() && line_[start] == ' ') ++start;
  std::size_t end = start;
  while (end < line_.size() && is_word_character(line_[end])) ++end;
  return line_.substr(start, end - start);
}

std::string_view TextReader::take_word(std::string_view expected) {
  skip_spaces();
  const std::string_view word = peek_word();
  if (word.empty()) fail(expected);
  column_ += word.size();
  return word;
}

bool TextReader::accept(std::string_view literal) {
  skip_spaces();
  const bool is_word = is_word_character(literal.front());
  if (is_word ? peek_word() != literal : !left().starts_with(literal)) return false;
  column_ += literal.size();
  return true;
}

void TextReader::expect(std::string_view literal) {
  if (!accept(literal)) fail(fmt::format("`{}`", literal));
}

std::string TextReader::take_string() {
  if (!accept("\"")) fail("a string");
  std::string text;
  while (column_ < line_.size() && line_[column_] != '"') {
    const char c = line_[column_++];
    text += c == '\\' ? take_escape() : c;
  }
  if (column_ == line_.size()) fail("`\"`");
  ++column_;
  return text;
}

char TextReader::take_escape() {
  const char c = left().empty() ? '\0' : line_[column_++];
  if (c == '"' || c == '\\') return c;
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  if (c == 'x' && left().size() >= 2) {
    const int high = hex_digit(line_[column_]);
    const int low = hex_digit(line_[column_ + 1]);
    column_ += 2;
    if (high >= 0 && low >= 0) return static_cast<char>(high * 16 + low);
  }
  fail("an escape: \\\" \\\\ \\n \\t or \\x and two hexadecimal digits");
}

std::int64_t TextReader::take_integer(std::string_view expected) {
  skip_spaces();
  std::int64_t number = 0;
  const std::string_view word = peek_word();
  if (!read_number(word, number)) fail(expected);
  column_ += word.size();
  return number;
}

std::uint64_t TextReader::take_number(std::string_view expected, std::uint64_t limit) {
  skip_spaces();
  std::uint64_t number = 0;
  std::string_view word = peek_word();
  word = word.substr(0, word.find(':'));
  if (!read_number(word, number) || number > limit) fail(expected);
  column_ += word.size();
  return number;
}

Index TextReader::take_index(char prefix, std::string_view expected) {
  skip_spaces();
  Index index = 0;
  const std::string_view word = peek_word();
  if (!word.starts_with(prefix) || !read_number(word.substr(1), index)) fail(expected);
  column_ += word.size();
  return index;
}

TensorId TextReader::take_tensor() {
  return accept("undefined") ? kNoTensor : take_index('t', "a tensor");
}

IntList TextReader::take_integers() {
  IntList list;
  expect("[");
  if (accept("]")) return list;
  do {
    list.push_back(take_integer("an integer"));
  } while (accept(","));
  expect("]");
  return list;
}

Digest TextReader::take_digest() {
  skip_spaces();
  Digest digest;
  const std::string_view word = peek_word();
  if (word.size() != 32 || !read_number(word.substr(0, 16), digest.high, 16) ||
      !read_number(word.substr(16), digest.low, 16)) {
    fail("a digest of 32 hexadecimal digits");
  }
  column_ += word.size();
  return digest;
}

Blob TextReader::take_bytes() {
  skip_spaces();
  const std::string_view word = peek_word();
  if (!word.starts_with('x') || word.size() % 2 == 0) {
    fail("bytes: x and hexadecimal digits (this text may have been printed without them)");
  }
  std::vector<std::byte> bytes;
  bytes.reserve(word.size() / 2);
  for (std::size_t i = 1; i < word.size(); i += 2) {
    const int high = hex_digit(word[i]);
    const int low = hex_digit(word[i + 1]);
    if (high < 0 || low < 0) {
      column_ += i;
      fail("two hexadecimal digits");
    }
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  column_ += word.size();
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Value TextReader::take_value(int depth) {
  skip_spaces();
  if (depth > kMaxValueDepth) fail("lists that lie less deep in lists");
  const char c = left().empty() ? '\0' : left().front();
  if (c == '"') return {take_string()};
  if (c == '[') return {take_integers()};
  if (c == '{') {
    List list;
    expect("{");
    if (accept("}")) return {list};
    do {
      list.push_back(take_value(depth + 1));
    } while (accept(","));
    expect("}");
    return {list};
  }
  if (c == '-' || (c >= '0' && c <= '9') || peek_word() == "inf") return take_numeric_value();
  return take_word_value();
}

Value TextReader::take_word_value() {
  if (accept("none")) return {None()};
  if (accept("true")) return {true};
  if (accept("false")) return {false};
  if (peek_word() == "nan") return {take_nan()};
  for (std::string_view name : {"complex", "device", "generator", "opaque"}) {
    if (accept(name)) return take_call(name);
  }
  if (accept("undefined")) return {TensorRef{}};
  return {TensorRef{take_index('t', "a value")}};
}

Value TextReader::take_call(std::string_view name) {
  Value value;
  expect("(");
  if (name == "complex") {
    Complex complex;
    complex.real = take_real();
    expect(",");
    complex.imag = take_real();
    value.data = complex;
  } else if (name == "device") {
    value.data = take_named("a device", device_named);
  } else if (name == "generator") {
    value.data = GeneratorRef{take_string()};
  } else {
    value.data = Opaque{take_string()};
  }
  expect(")");
  return value;
}

Value TextReader::take_numeric_value() {
  std::int64_t integer = 0;
  const std::string_view word = peek_word();
  if (read_number(word, integer)) {
    column_ += word.size();
    return {integer};
  }
  if (word.find_first_of(".exi") == std::string_view::npos) fail("an integer of 64 bits");
  return {take_real()};
}

Real TextReader::take_real() {
  skip_spaces();
  if (peek_word() == "nan") return take_nan();
  Real real;
  const std::string_view word = peek_word();
  if (!read_real(word, real.value)) fail("a number");
  column_ += word.size();
  if (!accept("(")) return real;
  Real decimal;
  const std::string_view check = peek_word();
  if (!read_real(check, decimal.value) || decimal != real) {
    fail(fmt::format("{} in decimal", word));
  }
  column_ += check.size();
  expect(")");
  return real;
}

Real TextReader::take_nan() {
  expect("nan");
  expect("(");
  std::uint64_t bits = 0;
  const std::string_view word = peek_word();
  const Real real{read_number(word, bits, 16) ? std::bit_cast<double>(bits) : 0.0};
  if (word.size() != 16 || real.value == real.value) fail("the 16 hexadecimal digits of a NaN");
  column_ += word.size();
  expect(")");
  return real;
}

void TextReader::fail(std::string_view expected) const {
  std::size_t start = column_;
  while (start < line_.size() && line_[start] == ' ') ++start;
  std::string_view found = line_.substr(std::min(start, line_.size()));
  const std::size_t word = peek_word().size();
  found = found.substr(0, word > 0 ? word : 1);
  const std::string words = found.empty() ? "the end of the line" : fmt::format("`{}`", found);
  fail_at(start, fmt::format("expected {}, found {}", expected, words));
}

void TextReader::fail_at(std::size_t column, std::string_view message) const {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("line {}, column {}: {}", number_, column + 1, message));
}

}  // namespace steptape::trace
