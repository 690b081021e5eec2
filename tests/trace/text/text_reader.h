#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/model.h"

namespace steptape::trace {

/// Reads the words, strings and values of the text form, line by line. Blank lines and what follows
/// a `#` are skipped. `text` must outlive it. Every method that finds something else than it
/// expects throws Error (invalid_argument): "line 3, column 7: expected a tensor, found `b3`".
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}

  /// Goes to the next line that holds something; false at the end of the text.
  bool next_line();
  bool at_end_of_line();
  void expect_end_of_line();

  /// The next word without taking it; empty where there is none.
  std::string_view peek_word() const;
  std::string_view take_word(std::string_view expected);
  /// Takes `literal` if it comes next.
  bool accept(std::string_view literal);
  void expect(std::string_view literal);

  std::string take_string();
  std::int64_t take_integer(std::string_view expected);
  /// A number from 0 to `limit`.
  std::uint64_t take_number(std::string_view expected, std::uint64_t limit = UINT64_MAX);
  /// "t3" is index 3 with prefix 't'.
  Index take_index(char prefix, std::string_view expected);
  TensorId take_tensor();
  IntList take_integers();
  Digest take_digest();
  Blob take_bytes();
  Value take_value(int depth = 0);
  Real take_real();

  /// Calls `convert(word)` on the next word; what it throws gets the word's line and column.
  template <typename Convert>
  auto take_named(std::string_view expected, Convert&& convert);

  [[noreturn]] void fail(std::string_view expected) const;

 private:
  void skip_spaces();
  std::string_view left() const { return line_.substr(column_); }
  [[noreturn]] void fail_at(std::size_t column, std::string_view message) const;
  char take_escape();
  Value take_call(std::string_view name);
  Value take_word_value();
  Value take_numeric_value();
  Real take_nan();

  std::string_view rest_;
  std::string_view line_;
  std::size_t number_ = 0;
  std::size_t column_ = 0;
};

template <typename Convert>
auto TextReader::take_named(std::string_view expected, Convert&& convert) {
  skip_spaces();
  const std::size_t start = column_;
  const std::string_view word = take_word(expected);
  try {
    return convert(word);
  } catch (const std::exception& error) {
    fail_at(start, error.what());
  }
}

}  // namespace steptape::trace
