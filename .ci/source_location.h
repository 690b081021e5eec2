#pragma once

/// std::source_location for clang-tidy 14, whose compiler lacks the builtin that libstdc++ 12 makes
/// it of. Only scripts/lint_changed.sh includes this; no program is built with it.
#include <source_location>

#ifndef __cpp_lib_source_location
namespace std {
struct source_location {
  static constexpr source_location current() noexcept { return {}; }
  constexpr const char* file_name() const noexcept { return ""; }
  constexpr const char* function_name() const noexcept { return ""; }
  constexpr unsigned line() const noexcept { return 0; }
  constexpr unsigned column() const noexcept { return 0; }
};
}  // namespace std
#endif
