#include "replayer/runtime/cpu/lanes/schedule.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace steptape::replayer::cpu {
namespace {

/// Of jobs that can start, so many of the most urgent are looked at for each place.
constexpr std::size_t kWindow = 16;

class Scheduling {
 public:
  Scheduling(std::span<const Job> jobs, std::size_t lanes, double handoff_ns)
      : jobs_(jobs),
        handoff_ns_(handoff_ns),
        before_(jobs.size()),
        unmet_(jobs.size()),
        urgency_(jobs.size()),
        places_(jobs.size()),
        free_at_(lanes) {
    made_.lanes.resize(lanes);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      unmet_[i] = jobs[i].after.size();
      for (const std::size_t earlier : jobs[i].after) before_[earlier].push_back(i);
    }
    for (std::size_t i = jobs.size(); i-- > 0;) {
      for (const std::size_t later : before_[i])
        urgency_[i] = std::max(urgency_[i], urgency_[later]);
      urgency_[i] += jobs[i].ns;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (unmet_[i] == 0) ready_.insert({-urgency_[i], i});
    }
  }

  Schedule done() {
    while (!ready_.empty()) place(next());
    made_.ns = *std::ranges::max_element(free_at_);
    return std::move(made_);
  }

 private:
  struct Place {
    std::size_t lane = 0;
    std::size_t position = 0;
    double end = 0;
  };
  struct Start {
    std::pair<double, std::size_t> ready;  ///< what is in `ready_`
    std::size_t lane = 0;
    double at = 0;
  };

  double start_on(std::size_t job, std::size_t lane) const {
    double start = free_at_[lane];
    for (const std::size_t earlier : jobs_[job].after) {
      const Place& place = places_[earlier];
      start = std::max(start, place.end + (place.lane == lane ? 0 : handoff_ns_));
    }
    return start;
  }

  Start next() const {
    Start best;
    bool is_first = true;
    std::size_t seen = 0;
    for (auto each = ready_.begin(); each != ready_.end() && seen < kWindow; ++each, ++seen) {
      for (std::size_t lane = 0; lane < free_at_.size(); ++lane) {
        const double at = start_on(each->second, lane);
        if (!is_first && at >= best.at) continue;
        best = {*each, lane, at};
        is_first = false;
      }
    }
    return best;
  }

  void place(const Start& start) {
    ready_.erase(start.ready);
    const std::size_t job = start.ready.second;
    auto& lane = made_.lanes[start.lane];
    ScheduledJob scheduled{job, placed_++, {}};
    for (const std::size_t earlier : jobs_[job].after) {
      const Place& place = places_[earlier];
      if (place.lane == start.lane) continue;
      const auto known = std::ranges::find(scheduled.waits, place.lane, &Wait::lane);
      if (known == scheduled.waits.end()) {
        scheduled.waits.push_back({place.lane, place.position + 1});
      } else {
        known->done = std::max(known->done, place.position + 1);
      }
    }
    places_[job] = {start.lane, lane.size(), start.at + jobs_[job].ns};
    free_at_[start.lane] = places_[job].end;
    lane.push_back(std::move(scheduled));
    for (const std::size_t later : before_[job]) {
      if (--unmet_[later] == 0) ready_.insert({-urgency_[later], later});
    }
  }

  std::span<const Job> jobs_;
  double handoff_ns_;
  std::vector<std::vector<std::size_t>> before_;  ///< by job: those that wait for it
  std::vector<std::size_t> unmet_;                ///< by job: how many it still waits for
  std::vector<double> urgency_;                   ///< by job: the longest way from it to the end
  std::vector<Place> places_;
  std::vector<double> free_at_;  ///< by lane
  std::size_t placed_ = 0;
  std::set<std::pair<double, std::size_t>> ready_;
  Schedule made_;
};

}  // namespace

Schedule schedule(std::span<const Job> jobs, std::size_t lanes, double handoff_ns) {
  return Scheduling(jobs, lanes, handoff_ns).done();
}

}  // namespace steptape::replayer::cpu
