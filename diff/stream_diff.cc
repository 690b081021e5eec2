#include "diff/stream_diff.h"

#include <array>
#include <unordered_map>
#include <utility>

#include "trace/named.h"

namespace steptape::diff {
namespace {

constexpr std::array kKinds = {
    trace::Named{EditKind::kRemove, "remove"},
    trace::Named{EditKind::kInsert, "insert"},
    trace::Named{EditKind::kMove, "move"},
    trace::Named{EditKind::kChange, "change"},
};

/// Walks both streams at once, so that edits come in the order of the step.
class Walk {
 public:
  Walk(StreamDiff& out, const OpStream& a, const OpStream& b)
      : out_(out),
        a_(a),
        b_(b),
        pair_of_a_(a.recording().ops.size(), nullptr),
        pair_of_b_(b.recording().ops.size(), nullptr) {
    for (const OpPair& pair : out.alignment.pairs) {
      pair_of_a_[pair.a] = &pair;
      pair_of_b_[pair.b] = &pair;
    }
  }

  void run() {
    for (const OpPair& pair : out_.alignment.pairs) {
      if (pair.is_moved) continue;
      put_until(pair.a, pair.b);
      put_change(pair);
      ++next_a_;
      ++next_b_;
    }
    put_until(static_cast<trace::Index>(pair_of_a_.size()),
              static_cast<trace::Index>(pair_of_b_.size()));
  }

 private:
  /// What lies before the next pair that stays: removed and inserted ops, and moved ones where
  /// they arrive.
  void put_until(trace::Index end_a, trace::Index end_b) {
    for (; next_a_ < end_a; ++next_a_) {
      if (pair_of_a_[next_a_] == nullptr) put(EditKind::kRemove, next_a_, trace::kNone);
    }
    for (; next_b_ < end_b; ++next_b_) {
      const OpPair* pair = pair_of_b_[next_b_];
      if (pair == nullptr) {
        put(EditKind::kInsert, trace::kNone, next_b_);
        continue;
      }
      put(EditKind::kMove, pair->a, pair->b).matched_by = pair->matched_by;
      put_change(*pair);
    }
  }

  Edit& put(EditKind kind, trace::Index a, trace::Index b) {
    Edit& edit = out_.edits.emplace_back();
    edit.kind = kind;
    edit.a = a;
    edit.b = b;
    return edit;
  }

  void put_change(const OpPair& pair) {
    auto changes = changes_of(a_, pair.a, b_, pair.b, out_.alignment.buffers);
    if (changes.empty()) return;
    Edit& edit = put(EditKind::kChange, pair.a, pair.b);
    edit.matched_by = pair.matched_by;
    edit.changes = std::move(changes);
  }

  StreamDiff& out_;
  const OpStream& a_;
  const OpStream& b_;
  std::vector<const OpPair*> pair_of_a_, pair_of_b_;
  trace::Index next_a_ = 0;
  trace::Index next_b_ = 0;
};

class Stats {
 public:
  ModuleStat& of(const OpStream& stream, trace::Index op) {
    const trace::Recording& recording = stream.recording();
    const trace::Index module = recording.ops[op].module;
    const std::string path = module == trace::kNone ? "" : recording.modules[module].path;
    const auto [found, is_new] = positions_.try_emplace(path, stats_.size());
    if (is_new) stats_.push_back({.module = path});
    return stats_[found->second];
  }
  std::vector<ModuleStat> take() { return std::move(stats_); }

 private:
  std::vector<ModuleStat> stats_;
  std::unordered_map<std::string, std::size_t> positions_;
};

}  // namespace

std::string_view name_of(EditKind kind) noexcept { return find_name(kKinds, kind); }

StreamDiff compare(const OpStream& a, const OpStream& b) {
  StreamDiff out;
  out.alignment = align(a, b);
  Walk(out, a, b).run();
  return out;
}

std::vector<ModuleStat> stats_of(const StreamDiff& diff, const OpStream& a, const OpStream& b) {
  Stats stats;
  for (trace::Index op = 0; op < a.recording().ops.size(); ++op) ++stats.of(a, op).ops_a;
  for (trace::Index op = 0; op < b.recording().ops.size(); ++op) ++stats.of(b, op).ops_b;
  for (const Edit& edit : diff.edits) {
    ModuleStat& stat = edit.a == trace::kNone ? stats.of(b, edit.b) : stats.of(a, edit.a);
    switch (edit.kind) {
      case EditKind::kRemove:
        ++stat.removed;
        break;
      case EditKind::kInsert:
        ++stat.inserted;
        break;
      case EditKind::kMove:
        ++stat.moved;
        break;
      case EditKind::kChange:
        ++stat.changed;
        break;
    }
  }
  return stats.take();
}

}  // namespace steptape::diff
