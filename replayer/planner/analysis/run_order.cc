#include "replayer/planner/analysis/run_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "replayer/planner/analysis/writes.h"
#include "replayer/planner/numbers/bindings.h"

namespace steptape::replayer {
namespace {

/// A copy of what an op writes is taken in each run that may end after it.
constexpr std::uint64_t kMostBytesOfCount = 64;

/// Finds the ops that come before all others, host reads and the counting that they wait for, and
/// puts them in rounds: all that waits for nothing counts, what that leaves is read, and so on.
class Start {
 public:
  /// `written` has what each op writes.
  Start(const trace::Recording& recording, const std::vector<Lifetime>& lifetimes,
        const std::vector<std::vector<trace::BufferId>>& written)
      : recording_(recording),
        lifetimes_(lifetimes),
        written_(written),
        is_read_(recording.ops.size()),
        round_(recording.ops.size(), kStays),
        is_written_(recording.buffers.size()),
        is_used_(recording.buffers.size()),
        last_round_(recording.buffers.size(), 0) {
    for (const trace::HostRead& read : recording.reads) is_read_[read.op] = true;
    for (const auto& by_op : written) {
      for (const trace::BufferId id : by_op) is_written_[id] = true;
    }
    note_what_numbers_wait_for();
  }

  /// The place of each of them, from below up to -1; kStays: of an op that keeps its own.
  std::vector<std::int64_t> run() {
    trace::Index end = 0;  // after the last read
    std::int64_t rounds = 0;
    for (trace::Index op = 0; op < recording_.ops.size(); ++op) {
      if (!may_be_first(op)) {
        use(op);
        continue;
      }
      round_[op] = round_of(op);
      if (!is_read_[op]) continue;
      end = op + 1;
      rounds = std::max(rounds, round_[op] + 1);
    }
    // no read waits for the others
    std::fill(round_.begin() + end, round_.end(), kStays);
    for (std::int64_t& round : round_) round = round < rounds ? round - rounds : kStays;
    return std::move(round_);
  }

  static constexpr std::int64_t kStays = std::numeric_limits<std::int64_t>::max();

 private:
  /// By op, and by constant that holds a number: the reads that the number follows from.
  void note_what_numbers_wait_for() {
    const std::vector<trace::Index> read_of = reads_of_leaves(recording_);
    for (const trace::ScalarSite& site : recording_.scalars) {
      for (const trace::Index leaf : trace::leaves_of(recording_.formulas[site.formula])) {
        if (read_of[leaf] == trace::kNone) continue;
        (site.op == trace::kNone ? reads_of_constant_[site.buffer] : reads_of_op_[site.op])
            .push_back(recording_.reads[read_of[leaf]].op);
      }
    }
  }

  bool may_be_first(trace::Index op) const {
    const trace::Op& it = recording_.ops[op];
    bool may = is_read_[op] || counts(op);
    for_each_buffer(recording_, it.inputs, [&](trace::BufferId id) {
      may &= !is_used_[id] && !lifetimes_[id].made_inside &&
             recording_.buffers[id].device.kind == trace::DeviceKind::kCpu &&
             are_first(reads_of_constant_, id);
    });
    return may && are_first(reads_of_op_, op);
  }

  using ReadsOf = std::unordered_map<std::uint32_t, std::vector<trace::Index>>;
  bool are_first(const ReadsOf& reads_of, std::uint32_t key) const {
    const auto reads = reads_of.find(key);
    return reads == reads_of.end() || std::ranges::all_of(reads->second, [this](trace::Index read) {
             return round_[read] != kStays;
           });
  }

  /// Writes in place, a few bytes, and does nothing else.
  bool counts(trace::Index op) const {
    const trace::Op& it = recording_.ops[op];
    const live::Effects& effects =
        live::effects_of(*live::find_operator(recording_.operator_of(it)));
    if (effects.is_random || effects.may_throw_on_data || effects.is_inplace_view) return false;
    const std::vector<trace::BufferId>& written = written_[op];
    const auto is_small = [this](trace::BufferId id) {
      return recording_.buffers[id].bytes <= kMostBytesOfCount;
    };
    bool makes_none = true;
    for_each_buffer(recording_, it.outputs, [&](trace::BufferId id) {
      makes_none &= std::ranges::find(written, id) != written.end();
    });
    return !written.empty() && std::ranges::all_of(written, is_small) && makes_none;
  }

  /// Counts have even rounds and reads odd ones; what has to do with the same memory, or with what
  /// is read, comes in its order.
  std::int64_t round_of(trace::Index op) {
    std::int64_t round = is_read_[op] ? 1 : 0;
    const auto come_after = [&round](std::int64_t other) {
      const bool is_like_it = (other - round) % 2 == 0;
      round = std::max(round, is_like_it ? other : other + 1);
    };
    const trace::Op& it = recording_.ops[op];
    const auto await = [&](const ReadsOf& reads_of, std::uint32_t key) {
      const auto reads = reads_of.find(key);
      if (reads == reads_of.end()) return;
      for (const trace::Index read : reads->second) come_after(round_[read]);
    };
    await(reads_of_op_, op);
    for_each_buffer(recording_, it.inputs, [&](trace::BufferId id) {
      if (is_written_[id]) come_after(last_round_[id]);
      await(reads_of_constant_, id);
    });
    for_each_buffer(recording_, it.inputs, [&](trace::BufferId id) { last_round_[id] = round; });
    return round;
  }

  /// It stays where it is: nothing after it that has to do with the same memory comes before it.
  void use(trace::Index op) {
    const auto note = [this](trace::BufferId id) { is_used_[id] = is_written_[id]; };
    for_each_buffer(recording_, recording_.ops[op].inputs, note);
    for_each_buffer(recording_, recording_.ops[op].outputs, note);
  }

  const trace::Recording& recording_;
  const std::vector<Lifetime>& lifetimes_;
  const std::vector<std::vector<trace::BufferId>>& written_;
  std::vector<bool> is_read_;
  std::vector<std::int64_t> round_;
  std::vector<bool> is_written_;          ///< by buffer: what nothing writes is everybody's to read
  std::vector<bool> is_used_;             ///< by buffer that is written: by an op that stays
  std::vector<std::int64_t> last_round_;  ///< by buffer: of an op that is among the first
  ReadsOf reads_of_op_, reads_of_constant_;
};

}  // namespace

std::vector<std::int64_t> places_of(const trace::Recording& recording) {
  std::vector<std::int64_t> places(recording.ops.size());
  std::iota(places.begin(), places.end(), 0);
  if (recording.reads.empty()) return places;
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  std::vector<std::vector<trace::BufferId>> written;
  for (const trace::Op& op : recording.ops) written.push_back(written_by(recording, op));
  const std::vector<std::int64_t> first = Start(recording, lifetimes, written).run();
  std::vector<std::int64_t> last_write(recording.buffers.size(), -1);
  std::int64_t last_read = -1;
  auto read = recording.reads.begin();
  for (trace::Index op = 0; op < recording.ops.size(); ++op) {
    const bool is_read = read != recording.reads.end() && read->op == op;
    if (is_read) ++read;
    if (first[op] != Start::kStays) {
      places[op] = first[op];
    } else if (is_read) {
      for_each_buffer(recording, recording.ops[op].inputs, [&](trace::BufferId id) {
        last_read = std::max({last_read, last_write[id], lifetimes[id].defined});
      });
      places[op] = last_read;
    } else {
      for (const trace::BufferId id : written[op]) last_write[id] = op;
    }
  }
  return places;
}

}  // namespace steptape::replayer
