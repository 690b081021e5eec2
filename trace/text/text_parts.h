#pragma once

#include <string>
#include <string_view>

#include "trace/model.h"
#include "trace/text/text.h"

/// The small words of the text form.
namespace steptape::trace {

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
