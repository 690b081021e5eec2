#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "steptape/error.h"
#include "trace/dtype.h"

namespace steptape::trace {

/// The enumerator that the text form calls so. Throws Error (invalid_argument) where there is none.
template <typename Enum>
Enum value_named(std::string_view name) {
  constexpr unsigned kNumbers = 256;
  for (unsigned number = 0; number < kNumbers && name != "unknown"; ++number) {
    const auto value = static_cast<Enum>(number);
    if (name_of(value) == name) return value;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("nothing of the kind is called `{}`", name));
}

/// The device of which text_of gives `text`. Throws Error (invalid_argument) where there is none.
inline Device device_named(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::int32_t index = 0;
  if (colon != text.npos)
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), index);
  using enum DeviceKind;
  for (const DeviceKind kind : {kCpu, kCuda, kMeta, kOther}) {
    if (text_of({kind, index}) == text) return {kind, index};
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("`{}` is not a device", text));
}

}  // namespace steptape::trace
