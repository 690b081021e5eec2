#pragma once

#include <string>
#include <string_view>

#include "steptape/options.h"

namespace steptape::trace {

/// What whoever starts a program asks its sessions to record, besides what the program asks for:
/// `steptape record` writes it into the environment of the program, and sessions read it there.
struct RecordRequest {
  /// The environment variable that holds it.
  static constexpr const char* kVariable = "STEPTAPE_RECORD";

  static constexpr int kMostSignals = 64;  ///< of Linux, on_signal is up to this

  Record record = {};
  bool digests = false;  ///< as Options::digests
  bool timings = false;  ///< as Options::timings
  /// The run is made once more, as a control: names of traces gain ".again".
  bool is_again = false;
  std::string trace = {};  ///< where sessions that keep no trace keep one; empty: nowhere

  /// "at=57,digests:run.tape". Throws Error (invalid_argument) for a word that there is not.
  static RecordRequest parse(std::string_view text);
  /// As `parse` takes it; empty where nothing is asked for.
  std::string text() const;

  /// Adds what is asked for to `options` of the `number`th session of the process, from 1: the
  /// larger `first`, all of `at`, and `every` and `on_signal` in place of those that are there.
  void add_to(Options& options, std::uint64_t number) const;
};

/// "run.tape" and "again" → "run.again.tape".
std::string with_infix(const std::string& path, const std::string& infix);

/// `word` as one word of a POSIX shell's command line: in single quotes where it has to be.
std::string shell_word(std::string_view word);

}  // namespace steptape::trace
