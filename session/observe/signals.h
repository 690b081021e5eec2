#pragma once

#include <cstdint>

namespace steptape::session {

/// Starts to count how often the process gets `signal`, for as long as it runs; a handler that was
/// there before is called all the same. Throws Error (invalid_argument) for a signal that cannot be
/// handled. Any thread, as often as wanted.
void count_signal(int signal);

/// How often it came since.
std::uint64_t times_of_signal(int signal) noexcept;

}  // namespace steptape::session
