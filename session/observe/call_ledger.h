#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trace/ledger.h"

namespace steptape::storage {
class LedgerWriter;
}

namespace steptape::session {

/// The ledger of a session's calls, a file beside its trace. No failure reaches the training.
class CallLedger {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins the ledger at `path`, setting that of an earlier run aside; where the run goes on,
  /// appends to it.
  CallLedger(const std::string& path, const trace::Digest& run, bool goes_on);
  ~CallLedger();
  CallLedger(const CallLedger&) = delete;
  CallLedger& operator=(const CallLedger&) = delete;

  /// The file is in the hands of another process or session, whose lines are not mixed with these.
  bool is_taken() const { return is_taken_; }
  /// The number after the name that an earlier run's ledger has now; none where there was none.
  std::optional<std::uint64_t> earlier() const { return earlier_; }
  /// How many calls of the step the run has done; none where nobody counts, since there is no file.
  std::optional<std::uint64_t> calls_of(std::string_view step) noexcept;
  /// Of one call more of the step, which ended `now`; its number is found here.
  void append(std::string_view step, trace::LedgerLine line, Clock::time_point now) noexcept;
  /// What went wrong, and what it cost; empty where nothing did.
  std::string problem() const;

 private:
  struct Step {
    std::string name;
    std::uint16_t number;
    std::uint64_t calls;
  };
  Step& find(std::string_view name);

  std::unique_ptr<storage::LedgerWriter> writer_;
  std::vector<Step> steps_;
  Clock::time_point handed_over_ = Clock::now();
  bool is_taken_ = false;
  std::optional<std::uint64_t> earlier_;
  std::string problem_;
};

}  // namespace steptape::session
