#include "diff/ledger/times.h"

#include <algorithm>
#include <map>
#include <utility>

namespace steptape::diff {
namespace {

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

}  // namespace

Times times_of(std::vector<std::uint64_t> times) {
  if (times.empty()) return {};
  std::ranges::sort(times);
  const auto at = [&times](std::size_t percent) {
    return times[(times.size() - 1) * percent / 100];
  };
  return {times.size(), at(0), at(25), at(50), at(75), at(95), at(100)};
}

bool TimeDifference::is_comparable() const noexcept { return std::min(a.count, b.count) >= fewest; }

bool TimeDifference::has_middle_halves() const noexcept {
  return std::min(a.count, b.count) >= kFewestForMiddleHalf;
}

bool TimeDifference::differs() const noexcept {
  const bool is_middle_half = has_middle_halves();
  const auto is_outside = [&](std::uint64_t median, const Times& others) {
    return median + microsecond < (is_middle_half ? others.lower_quartile : others.least) ||
           median > (is_middle_half ? others.upper_quartile : others.most) + microsecond;
  };
  return is_comparable() && is_outside(a.median, b) && is_outside(b.median, a);
}

std::uint64_t TimeDifference::distance() const noexcept {
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
  out.step = {"", times_of(std::move(times_a.all)), times_of(std::move(times_b.all))};
  for (auto& [path, nanoseconds] : times_a.modules) {
    const auto other = times_b.modules.find(path);
    if (other == times_b.modules.end()) continue;
    out.modules.emplace_back(path, times_of(std::move(nanoseconds)),
                             times_of(std::move(other->second)));
  }
  std::ranges::stable_sort(out.modules, [](const auto& x, const auto& y) {
    return std::pair(x.differs(), x.distance()) > std::pair(y.differs(), y.distance());
  });
  return out;
}

}  // namespace steptape::diff
