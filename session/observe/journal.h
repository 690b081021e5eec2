#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/observe/event.h"
#include "steptape/refusal.h"
#include "steptape/stats.h"
#include "steptape/verdict.h"
#include "trace/ledger.h"
#include "trace/model.h"

namespace steptape::session {

/// The guards that calls of a step fell back for, counted: one entry a guard, told apart by kind
/// and path. Holds the 64 that are met most, so that ever new paths cost no memory; where all are
/// met equally rarely, the newest.
class Fallbacks {
 public:
  /// Returns the entry as it is then.
  const CountedVerdict& count(const Verdict& verdict, std::uint64_t last_held);
  /// Most frequent first.
  std::vector<CountedVerdict> by_frequency() const;
  /// Calls, those of guards that are no longer held too.
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t total_ = 0;
  std::vector<CountedVerdict> entries_;  ///< the one that was met last is last
};

/// "shape: inputs[0].size(0): 64 → 17 (held until 3 calls ago)".
std::string text_of(const Verdict& verdict, std::uint64_t last_held);
/// The same of each variant: "variant 0: shape: ...; variant 1: ...".
std::string text_of(const std::vector<VariantVerdict>& verdicts);

struct SessionState;
struct Variant;
struct Verified;

/// What happens to one step: counts it for the step and for the process, and makes events of it for
/// those who asked. Decides nothing. Used as the step is, by one thread at a time.
class Journal {
 public:
  /// `session` must outlive the last call of the step.
  Journal(SessionState& session, std::string step, std::string place);

  /// A call begins that is not inside a recorded one; returns its number, counted from 1.
  std::uint64_t begin_call();
  /// Where outcome and verdict of calls go from here on, or null; gives what was told
  /// before.
  trace::LedgerLine* write_to(trace::LedgerLine* line) { return std::exchange(line_, line); }
  /// The line of the call under way, or null.
  trace::LedgerLine* line() const { return line_; }
  /// Calls that are over.
  std::uint64_t calls() const { return stats_.steps; }
  std::uint64_t call() const { return call_; }

  /// How a call ended; each ends in one of these.
  void replayed(const Variant& variant);
  void ran_eagerly();
  void recorded(const trace::Recording& recording, bool is_warm_up);
  void tried(const Variant& variant, const Verified& verified);
  void audited(const Variant& variant, const Verified& verified);

  /// Why variants did not fit the call so far; what they did was undone.
  void did_not_fit(const std::vector<VariantVerdict>& verdicts);
  /// No variant fitted the call; empty when there was none to ask.
  void fell_back(const std::vector<VariantVerdict>& verdicts);
  void planned(const Variant& variant);
  /// It goes on in other memory, that of the tensor `path` and perhaps of others.
  void rebound(const Variant& variant, const std::string& path);
  void dropped(const Variant& variant, const std::string& why);
  void invalidated(const std::string& why);
  void refused(const Refusal& refusal);
  /// Counts a refusal that was told of before.
  void refused_again(const Refusal& refusal);
  /// Options::trace was written; `problem` says why not, if so.
  void wrote_trace(const std::string& path, const std::string& problem);

  const Verdict& last_verdict() const { return stats_.last_verdict; }
  /// All but the variants and what the session knows.
  Stats stats() const;

 private:
  void end_call(trace::CallOutcome outcome, const Variant* variant = nullptr);
  bool wants(Category category) const;
  Event event(Category category, std::string name, std::string text) const;
  void write(Event event) const;
  void verified(const std::string& what, const Variant& variant, const Verified& verified);

  SessionState& session_;
  std::string step_;
  std::string place_;
  std::uint64_t call_ = 0;
  trace::LedgerLine* line_ = nullptr;
  Stats stats_;
  std::vector<std::uint64_t> refused_in_;  ///< of each of stats_.refusals, the newest call
  Fallbacks fallbacks_;
};

}  // namespace steptape::session
