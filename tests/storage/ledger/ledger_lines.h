#pragma once

#include <algorithm>
#include <string>

#include "storage/ledger/ledger_reader.h"
#include "storage/ledger/ledger_writer.h"
#include "tests/storage/memory_file_system.h"

namespace steptape::storage {

inline constexpr const char* kLedgerPath = "/traces/run.tape.ledger";
inline constexpr trace::Digest kRun = {0x0123456789abcdef, 0xfedcba9876543210};

/// A line that no other call has.
inline trace::LedgerLine line_of(std::uint16_t step, std::uint64_t call) {
  const std::uint64_t mix = (call + step) * 0x9e3779b97f4a7c15;
  trace::LedgerLine line;
  line.step = step;
  line.call = call;
  line.outcome = trace::call_outcomes()[call % trace::call_outcomes().size()];
  line.verdict = call % 7 == 0 ? GuardKind::kRunShape : GuardKind::kNone;
  line.variant = static_cast<std::uint16_t>(mix >> 7U);
  line.inputs = mix;
  line.results = mix + 1;
  line.gradients = call % 3 == 0 ? 0 : mix + 2;
  line.parameters = mix + 3;
  line.generators = static_cast<std::uint32_t>(mix);
  line.microseconds = static_cast<std::uint32_t>(call);
  return line;
}

/// Appends calls `first` to `last` of the step.
inline void append(LedgerWriter& writer, std::uint16_t step, std::uint64_t first,
                   std::uint64_t last) {
  for (std::uint64_t call = first; call <= last; ++call) writer.append(line_of(step, call));
}

/// Two steps, one of a long name, in a few flushes; the bytes of its file.
inline std::string sample_ledger(trace::Ledger& ledger) {
  MemoryFileSystem files;
  ledger = {kRun, {"train", std::string(100, 'x') + "\n"}, {}};
  {
    LedgerWriter writer(kLedgerPath, kRun, files);
    for (std::uint64_t call = 1; call <= 6; ++call) {
      for (std::uint16_t step = 0; step < 2; ++step) {
        const trace::LedgerLine line = line_of(writer.step(ledger.steps[step]), call);
        writer.append(line);
        ledger.lines.push_back(line);
      }
      if (call % 2 == 0) writer.flush();
    }
  }
  return files.bytes_at(kLedgerPath);
}

/// Whether `found` has the names and lines that come first in `whole`.
inline bool is_prefix(const trace::Ledger& found, const trace::Ledger& whole) {
  const auto begins = [](const auto& long_one, const auto& short_one) {
    return short_one.size() <= long_one.size() &&
           std::equal(short_one.begin(), short_one.end(), long_one.begin());
  };
  return begins(whole.steps, found.steps) && begins(whole.lines, found.lines);
}

}  // namespace steptape::storage
