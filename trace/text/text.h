#pragma once

#include <string>
#include <string_view>

#include "trace/model.h"

namespace steptape::trace {

/// What the text form holds of blobs.
enum class Contents {
  kDigests,  ///< size and digest: short, for reading; such a text cannot be parsed back in full
  kBytes,    ///< every byte, in hexadecimal
};

/// The text form: one line a thing, stable, greppable, diffable. The tests read it back: no two
/// traces have the same one with kBytes.
std::string print(const Trace& trace, Contents contents);
std::string print(const Recording& recording, Contents contents);
/// "aten::add_.Tensor(t3, t7, 1)": one op as the text form shows it, without its position.
std::string print_op(const Recording& recording, const Op& op);
/// A value as the text form shows it: `0x1.999999999999ap-4 (0.1)` for reals, `t3`, `[1, 2]`.
std::string print_value(const Value& value);
/// The same for people: reals in decimal alone, "0.1". Two reals of other bits never read alike.
std::string words_of(const Value& value);
/// "float32 [8, 4]"
std::string words_of_geometry(const Tensor& tensor);
/// The same; "undefined" for kNoTensor.
std::string words_of_geometry(const Recording& recording, TensorId tensor);

// The small words of the text form.

inline constexpr std::string_view kTextHeader = "steptape trace 1";

/// In double quotes, with control characters, quotes and backslashes escaped.
std::string in_quotes(std::string_view text);
/// With a space in the place of each control character: no name reaches a terminal raw, and no end
/// of line ends a line.
std::string on_one_line(std::string_view text);
/// "x00ff": the bytes in hexadecimal.
std::string hex_of(const std::vector<std::byte>& bytes);
/// The number of the call that stands for itself: the first, where the module is known.
inline std::uint32_t usual_call(Index module) { return module == kNone ? 0 : 1; }
/// Whether `word` can stand in an op line without quotes: "aten::add_.Tensor".
bool is_operator_word(std::string_view word) noexcept;

}  // namespace steptape::trace
