#include "session/keep/record_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "live/nonfinite.h"
#include "session/observe/signals.h"

namespace steptape::session {
namespace {

bool has_nonfinite(const pack::Results& results) {
  const auto is_nonfinite = [](const pack::Number& number) {
    const auto* real = std::get_if<double>(&number);
    return real != nullptr && !std::isfinite(*real);
  };
  return std::ranges::any_of(results.tensors, live::has_nonfinite) ||
         std::ranges::any_of(results.numbers, is_nonfinite);
}

}  // namespace

RecordSchedule::RecordSchedule(const Record& record)
    : record_(record),
      is_empty_(record.first == 0 && record.every == 0 && record.at.empty() &&
                !record.on_nonfinite && record.on_signal == 0) {
  if (record_.on_signal == 0) return;
  count_signal(record_.on_signal);
  signals_seen_ = times_of_signal(record_.on_signal);
}

bool RecordSchedule::wants(std::uint64_t call) {
  const bool is_due = std::exchange(is_due_, false);
  const bool is_told = has_signal();
  return is_due || is_told || call <= record_.first ||
         (record_.every != 0 && call % record_.every == 0) ||
         std::ranges::find(record_.at, call) != record_.at.end();
}

bool RecordSchedule::has_signal() {
  if (record_.on_signal == 0) return false;
  const std::uint64_t times = times_of_signal(record_.on_signal);
  return std::exchange(signals_seen_, times) != times;
}

void RecordSchedule::note(const pack::Results& results) {
  if (!record_.on_nonfinite) return;
  const bool is_nonfinite = has_nonfinite(results);
  is_due_ = is_due_ || (is_nonfinite && !was_nonfinite_);
  was_nonfinite_ = is_nonfinite;
}

}  // namespace steptape::session
