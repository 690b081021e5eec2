#include "diff/ledger/times.h"

#include <algorithm>
#include <map>
#include <utility>

namespace steptape::diff {
namespace {

bool is_outside(std::uint64_t median, const TimeBand& others, std::uint64_t resolution) {
  return median + resolution < others.lower || median > others.upper + resolution;
}

TimeBand middle_half(const CallTimes& times) {
  return {times.lower_quartile, times.median, times.upper_quartile};
}

constexpr std::uint64_t kOneMicrosecond = 1000;

bool is_timed(const trace::Recording& recording) noexcept {
  return recording.status != trace::Status::kWarmUp && !recording.op_ns.empty();
}

/// Nanoseconds of one recording each.
struct StepTimes {
  std::vector<std::uint64_t> all;
  std::map<std::string, std::vector<std::uint64_t>> modules;  ///< by path
};

void add(StepTimes& times, const trace::Recording& recording) {
  std::uint64_t all = 0;
  std::map<trace::Index, std::uint64_t> modules;
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    all += recording.op_ns[i];
    modules[recording.ops[i].module] += recording.op_ns[i];
  }
  times.all.push_back(all);
  std::map<std::string, std::uint64_t> paths;  // several modules may be of one path
  for (const auto& [module, nanoseconds] : modules) {
    paths[recording.module_path(module)] += nanoseconds;
  }
  for (const auto& [path, nanoseconds] : paths) times.modules[path].push_back(nanoseconds);
}

StepTimes times_of(const trace::Step& step) {
  StepTimes times;
  for (const trace::Recording& recording : step.recordings) {
    if (is_timed(recording)) add(times, recording);
  }
  return times;
}

TimeBand band_of(const OpTimes& times, bool is_middle_half) {
  if (is_middle_half) return {times.lower_quartile, times.median, times.upper_quartile};
  return {times.least, times.median, times.most};
}

}  // namespace

bool lie_apart(const TimeBand& a, const TimeBand& b, std::uint64_t resolution) noexcept {
  return is_outside(a.median, b, resolution) && is_outside(b.median, a, resolution);
}

CallTimes times_of(std::vector<std::uint32_t> microseconds) {
  if (microseconds.empty()) return {};
  std::ranges::sort(microseconds);
  const auto at = [&microseconds](std::size_t percent) {
    return microseconds[percentile(microseconds.size(), percent)];
  };
  return {microseconds.size(), at(25), at(50), at(75), at(95)};
}

bool are_comparable(const CallTimes& a, const CallTimes& b) noexcept {
  return std::min(a.calls, b.calls) >= kFewestCalls;
}

bool differ(const CallTimes& a, const CallTimes& b) noexcept {
  constexpr std::uint64_t kOneMicrosecond = 1;
  return are_comparable(a, b) && lie_apart(middle_half(a), middle_half(b), kOneMicrosecond);
}

OpTimes op_times_of(std::vector<std::uint64_t> nanoseconds) {
  if (nanoseconds.empty()) return {};
  std::ranges::sort(nanoseconds);
  const auto at = [&nanoseconds](std::size_t percent) {
    return nanoseconds[percentile(nanoseconds.size(), percent)];
  };
  return {nanoseconds.size(), at(0), at(25), at(50), at(75), at(100)};
}

bool OpTimeDifference::is_comparable() const noexcept {
  return std::min(a.recordings, b.recordings) >= kFewestRecordings;
}

bool OpTimeDifference::has_middle_halves() const noexcept {
  return std::min(a.recordings, b.recordings) >= kFewestForMiddleHalf;
}

bool OpTimeDifference::differs() const noexcept {
  const bool is_middle_half = has_middle_halves();
  return is_comparable() &&
         lie_apart(band_of(a, is_middle_half), band_of(b, is_middle_half), kOneMicrosecond);
}

std::uint64_t OpTimeDifference::distance() const noexcept {
  return std::max(a.median, b.median) - std::min(a.median, b.median);
}

std::uint64_t OpTimeDifferences::differing() const noexcept {
  const auto count = std::ranges::count_if(modules, &OpTimeDifference::differs);
  return static_cast<std::uint64_t>(count) + (step.differs() ? 1 : 0);
}

bool has_op_times(const trace::Step& step) noexcept {
  return std::ranges::any_of(step.recordings, is_timed);
}

std::optional<OpTimeDifferences> op_time_differences(const trace::Step& a, const trace::Step& b) {
  if (!has_op_times(a) || !has_op_times(b)) return std::nullopt;
  StepTimes times_a = times_of(a);
  StepTimes times_b = times_of(b);
  OpTimeDifferences out;
  out.step = {"", op_times_of(std::move(times_a.all)), op_times_of(std::move(times_b.all))};
  for (auto& [path, nanoseconds] : times_a.modules) {
    const auto other = times_b.modules.find(path);
    if (other == times_b.modules.end()) continue;
    out.modules.push_back(
        {path, op_times_of(std::move(nanoseconds)), op_times_of(std::move(other->second))});
  }
  std::ranges::stable_sort(out.modules, [](const auto& x, const auto& y) {
    return std::pair(x.differs(), x.distance()) > std::pair(y.differs(), y.distance());
  });
  return out;
}

}  // namespace steptape::diff
