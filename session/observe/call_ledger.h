#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "live/objects.h"
#include "steptape/pack.h"
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

// What a ledger compares two runs by: bits, dtypes and shapes, as one number each. Never 0, which
// is for what was not taken; tensors that are not plain, or not on the CPU, count by their place
// alone.

std::uint64_t digest_of(const pack::Results& results);
std::uint64_t digest_of(std::span<const pack::Leaf> arguments);

/// Of what tracked objects hold now.
struct StateDigests {
  std::uint64_t gradients = 0;
  std::uint64_t parameters = 0;  ///< and module buffers
  std::uint32_t generators = 0;

  static StateDigests take(const live::Objects& objects);
};

class Journal;
struct SessionState;

/// What the ledger is to say of one call of a step, while this lives; it is written when this goes
/// and the call ended, if only by an exception after its end. Nothing where nobody keeps a ledger.
class CallLine {
 public:
  /// All must outlive the object. `arguments` as the call found them.
  CallLine(SessionState& session, Journal& journal, const std::string& step,
           const std::vector<pack::Leaf>& arguments);
  ~CallLine();
  CallLine(const CallLine&) = delete;
  CallLine& operator=(const CallLine&) = delete;

 private:
  using Clock = CallLedger::Clock;

  void take_state();

  SessionState& session_;
  Journal& journal_;
  const std::string& step_;
  trace::LedgerLine line_;
  trace::LedgerLine* outer_ = nullptr;  ///< of a call that this one is inside
  Clock::time_point start_;
};

}  // namespace steptape::session
