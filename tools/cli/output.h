#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

namespace steptape::tools {

enum class Paging { kOnTerminal, kNever };

/// Writes a long result: through $PAGER, `less -FRX` where it is not set, when the standard output
/// is a terminal, otherwise as `put` does. A reader who leaves the pager early is no error.
void put_paged(std::string_view text, Paging paging);

/// Writes a result, as it is.
void put(std::string_view text);
/// False, with a word on the standard error, when some of the results could not be written.
bool flush_output();
/// "steptape: <code>: <message>" on the standard error.
void complain(const std::exception& error);
void complain(std::string_view message);

enum class Tone { kHeading, kGood, kBad };
enum class Colours {
  kAuto,  ///< where the standard output is a terminal and NO_COLOR is not set
  kAlways,
  kNever,
};
/// What `toned` does from here on; kAuto until it is called.
void set_colours(Colours colours);
std::string toned(Tone tone, std::string_view text);

/// Without the characters that would move a terminal's cursor: names in a trace are untrusted.
std::string shown(std::string_view name);
/// The same; "no module" where it is empty.
std::string shown_module(std::string_view path);
/// "17 B", "4.0 KiB", "1.5 GiB".
std::string size_of(std::uint64_t bytes);
/// "1 op", "2 ops".
std::string count_of(std::uint64_t count, std::string_view noun);

/// Writes a result to `path`, beside it first and then renamed, so that it is there whole or not at
/// all; to the standard output where `path` is empty or "-". Throws Error: (io) with what the
/// operating system said; (failed_precondition) where `path` holds a trace, which no result
/// replaces.
void put_result(std::string_view result, const std::filesystem::path& path);

}  // namespace steptape::tools
