#include "diff/align/alignment.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "diff/align/op_keys.h"
#include "diff/align/sequence.h"
#include "trace/named.h"

namespace steptape::diff {
namespace {

/// Whether ops of two operators may be paired when they take the same arguments.
enum class Replacement { kAllowed, kForbidden };

/// Aligns parts of two op streams, each a list of ops in their order, and learns from the pairs
/// which buffers stand for each other. The keys must outlive it.
class GapAlignment {
 public:
  GapAlignment(const std::vector<OpKeys>& a, const std::vector<OpKeys>& b) : a_(a), b_(b) {}

  /// The pairs, ascending. At the least cost where at most 128 by 128 ops differ; larger parts are
  /// first divided at ops that are equal, then at those of equal structure, then by operator.
  std::vector<Match> align(std::span<const trace::Index> a, std::span<const trace::Index> b,
                           Replacement replacement);

 private:
  struct Part {
    std::span<const trace::Index> a, b;
  };
  enum class Level { kExact, kStructure, kName };
  enum class Likeness { kEqual, kChanged, kNone };

  void align_part(Part part, Level level);
  void divide(const Part& part, Level level);
  void align_table(const Part& part);
  Likeness likeness_of(trace::Index a, trace::Index b) const;
  /// Whether they are equal, as far as is known of their buffers.
  bool are_equal(trace::Index a, trace::Index b) const;
  bool may_join_buffers(trace::Index a, trace::Index b) const;
  void add(trace::Index a, trace::Index b);

  const std::vector<OpKeys>& a_;
  const std::vector<OpKeys>& b_;
  Replacement replacement_ = Replacement::kAllowed;
  BufferPairs buffers_;
  std::vector<Match> found_;
};

constexpr std::size_t kMaxCells = std::size_t{128} * 128;

// A change costs as much as a removal, and a little more, so that of two ways that cost the same
// the one with fewer changes is taken.
constexpr std::uint32_t kOneSided = 1000;
constexpr std::uint32_t kChange = 1001;

bool GapAlignment::may_join_buffers(trace::Index a, trace::Index b) const {
  return std::ranges::equal(
      a_[a].buffers, b_[b].buffers,
      [this](trace::BufferId x, trace::BufferId y) { return buffers_.may_join(x, y); });
}

bool GapAlignment::are_equal(trace::Index a, trace::Index b) const {
  return a_[a].content == b_[b].content && may_join_buffers(a, b);
}

GapAlignment::Likeness GapAlignment::likeness_of(trace::Index a, trace::Index b) const {
  if (are_equal(a, b)) return Likeness::kEqual;
  if (a_[a].name == b_[b].name) return Likeness::kChanged;
  const bool is_replaced = replacement_ == Replacement::kAllowed &&
                           a_[a].arguments == b_[b].arguments && may_join_buffers(a, b);
  return is_replaced ? Likeness::kChanged : Likeness::kNone;
}

void GapAlignment::add(trace::Index a, trace::Index b) {
  found_.push_back({a, b});
  join_buffers(buffers_, a_[a], b_[b]);
}

std::vector<Match> GapAlignment::align(std::span<const trace::Index> a,
                                       std::span<const trace::Index> b, Replacement replacement) {
  replacement_ = replacement;
  found_.clear();
  align_part({a, b}, Level::kExact);
  return std::move(found_);
}

void GapAlignment::align_part(Part part, Level level) {
  const auto fit = [this](trace::Index a, trace::Index b) {
    return a_[a].exact == b_[b].exact && are_equal(a, b);
  };
  while (!part.a.empty() && !part.b.empty() && fit(part.a.front(), part.b.front())) {
    add(part.a.front(), part.b.front());
    part = {part.a.subspan(1), part.b.subspan(1)};
  }
  const Part whole = part;
  while (!part.a.empty() && !part.b.empty() && fit(part.a.back(), part.b.back())) {
    part = {part.a.first(part.a.size() - 1), part.b.first(part.b.size() - 1)};
  }
  if (!part.a.empty() && !part.b.empty()) {
    if (part.a.size() <= kMaxCells / part.b.size()) {
      align_table(part);
    } else {
      divide(part, level);
    }
  }
  for (std::size_t i = part.a.size(), j = part.b.size(); i < whole.a.size(); ++i, ++j) {
    add(whole.a[i], whole.b[j]);
  }
}

void GapAlignment::divide(const Part& part, Level level) {
  const auto keys_of = [level](std::span<const trace::Index> ops, const std::vector<OpKeys>& keys) {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(ops.size());
    for (const trace::Index op : ops) {
      const OpKeys& of_op = keys[op];
      numbers.push_back(level == Level::kExact       ? of_op.exact
                        : level == Level::kStructure ? of_op.structure
                                                     : of_op.name);
    }
    return numbers;
  };
  const auto matches = common_subsequence(keys_of(part.a, a_), keys_of(part.b, b_));
  Match next{0, 0};
  const auto align_before = [&](Match end) {
    if (level == Level::kName) return;
    const Level finer = level == Level::kExact ? Level::kStructure : Level::kName;
    align_part({part.a.subspan(next.a, end.a - next.a), part.b.subspan(next.b, end.b - next.b)},
               finer);
  };
  for (const Match& match : matches) {
    align_before(match);
    add(part.a[match.a], part.b[match.b]);
    next = {match.a + 1, match.b + 1};
  }
  align_before(
      {static_cast<trace::Index>(part.a.size()), static_cast<trace::Index>(part.b.size())});
}

void GapAlignment::align_table(const Part& part) {
  enum Way : std::uint8_t { kPair, kRemove, kInsert };
  const std::size_t columns = part.b.size() + 1;
  // the cost of what is left from here on
  std::vector<std::uint32_t> cost((part.a.size() + 1) * columns, 0);
  std::vector<Way> way(cost.size(), kInsert);
  for (std::size_t i = part.a.size() + 1; i-- > 0;) {
    for (std::size_t j = columns; j-- > 0;) {
      const std::size_t at = i * columns + j;
      const bool has_a = i < part.a.size();
      const bool has_b = j + 1 < columns;
      if (!has_a && !has_b) continue;
      cost[at] = ~std::uint32_t{0};
      const auto offer = [&](std::uint32_t price, Way offered) {
        if (price < cost[at]) cost[at] = price, way[at] = offered;
      };
      if (has_a && has_b) {
        const Likeness likeness = likeness_of(part.a[i], part.b[j]);
        const std::uint32_t rest = cost[at + columns + 1];
        if (likeness == Likeness::kEqual) offer(rest, kPair);
        if (likeness == Likeness::kChanged) offer(rest + kChange, kPair);
      }
      if (has_a) offer(cost[at + columns] + kOneSided, kRemove);
      if (has_b) offer(cost[at + 1] + kOneSided, kInsert);
    }
  }
  for (std::size_t i = 0, j = 0; i < part.a.size() && j + 1 < columns;) {
    const Way taken = way[i * columns + j];
    if (taken == kPair) add(part.a[i], part.b[j]);
    i += taken == kInsert ? 0 : 1;
    j += taken == kRemove ? 0 : 1;
  }
}

constexpr std::array kMatchedBy = {
    trace::Named{MatchedBy::kModuleCall, "module_call"},
    trace::Named{MatchedBy::kSequence, "sequence"},
    trace::Named{MatchedBy::kContent, "content"},
};

/// Ops of one module call and phase on both sides.
struct Group {
  std::vector<trace::Index> a, b;
  bool has_module = false;
};

class Aligner {
 public:
  Aligner(const OpStream& a, const std::vector<OpKeys>& keys_a, const std::vector<OpKeys>& keys_b)
      : stream_a_(a),
        a_(keys_a),
        b_(keys_b),
        partner_of_a_(keys_a.size(), trace::kNone),
        is_paired_b_(keys_b.size(), false),
        gaps_(keys_a, keys_b) {}

  std::vector<OpPair> take() {
    align_groups();
    align_gaps();
    pair_equal_ops();
    mark_moved();
    return std::move(pairs_);
  }

 private:
  void add(const Match& match, MatchedBy matched_by) {
    pairs_.push_back({match.a, match.b, matched_by, false});
    partner_of_a_[match.a] = match.b;
    is_paired_b_[match.b] = true;
  }

  void align_groups() {
    std::unordered_map<std::uint64_t, std::size_t> by_place;
    std::vector<Group> groups;
    const auto group_at = [&](std::uint64_t place) -> Group& {
      const auto [found, is_new] = by_place.try_emplace(place, groups.size());
      if (is_new) groups.emplace_back();
      return groups[found->second];
    };
    for (trace::Index i = 0; i < a_.size(); ++i) {
      Group& group = group_at(a_[i].place);
      group.a.push_back(i);
      group.has_module = stream_a_.recording().ops[i].module != trace::kNone;
    }
    for (trace::Index i = 0; i < b_.size(); ++i) group_at(b_[i].place).b.push_back(i);
    for (const Group& group : groups) {
      const MatchedBy by = group.has_module ? MatchedBy::kModuleCall : MatchedBy::kSequence;
      for (const Match& match : gaps_.align(group.a, group.b, Replacement::kAllowed)) {
        add(match, by);
      }
    }
  }

  /// Pairs that have one order, as many as there can be; the others are marked as moved.
  void mark_moved() {
    std::ranges::sort(pairs_, {}, &OpPair::a);
    std::vector<trace::Index> order;
    order.reserve(pairs_.size());
    for (OpPair& pair : pairs_) {
      order.push_back(pair.b);
      pair.is_moved = true;
    }
    for (const trace::Index i : longest_increasing(order)) pairs_[i].is_moved = false;
  }

  void align_gaps() {
    mark_moved();
    Match next{0, 0};
    std::vector<Match> found;
    const auto align_before = [&](Match end) {
      std::vector<trace::Index> a, b;
      for (trace::Index i = next.a; i < end.a; ++i) {
        if (partner_of_a_[i] == trace::kNone) a.push_back(i);
      }
      for (trace::Index i = next.b; i < end.b; ++i) {
        if (!is_paired_b_[i]) b.push_back(i);
      }
      next = {end.a + 1, end.b + 1};
      if (a.empty() || b.empty()) return;
      std::ranges::copy(gaps_.align(a, b, Replacement::kForbidden), std::back_inserter(found));
    };
    for (const OpPair& pair : pairs_) {
      if (!pair.is_moved) align_before({pair.a, pair.b});
    }
    align_before({static_cast<trace::Index>(a_.size()), static_cast<trace::Index>(b_.size())});
    for (const Match& match : found) add(match, MatchedBy::kSequence);
  }

  void pair_equal_ops() {
    using Key = std::pair<std::uint64_t, std::uint64_t>;
    using MakeKey = Key (*)(const OpKeys&);
    pair_equal(MakeKey([](const OpKeys& op) { return Key(op.place, op.exact); }), false);
    pair_equal(MakeKey([](const OpKeys& op) { return Key(op.place, op.structure); }), true);
    pair_equal(MakeKey([](const OpKeys& op) { return Key(0, op.exact); }), true);
  }

  /// Pairs what is left and has equal keys, first with first.
  template <typename MakeKey>
  void pair_equal(MakeKey make_key, bool needs_path) {
    std::map<decltype(make_key(a_[0])), std::vector<trace::Index>> left;
    for (trace::Index i = static_cast<trace::Index>(b_.size()); i-- > 0;) {
      if (!is_paired_b_[i]) left[make_key(b_[i])].push_back(i);
    }
    for (trace::Index i = 0; i < a_.size() && !left.empty(); ++i) {
      if (partner_of_a_[i] != trace::kNone || (needs_path && !a_[i].has_path)) continue;
      const auto found = left.find(make_key(a_[i]));
      if (found == left.end() || found->second.empty()) continue;
      add({i, found->second.back()}, MatchedBy::kContent);
      found->second.pop_back();
    }
  }

  const OpStream& stream_a_;
  const std::vector<OpKeys>& a_;
  const std::vector<OpKeys>& b_;
  std::vector<OpPair> pairs_;
  std::vector<trace::Index> partner_of_a_;
  std::vector<bool> is_paired_b_;
  GapAlignment gaps_;
};

/// Which of the two comes first, whichever is given first.
bool comes_before(const std::vector<OpKeys>& a, const std::vector<OpKeys>& b) {
  return std::ranges::lexicographical_compare(a, b, [](const OpKeys& x, const OpKeys& y) {
    return std::pair(x.exact, x.place) < std::pair(y.exact, y.place);
  });
}

BufferPairs buffers_of(const std::vector<OpPair>& pairs, const std::vector<OpKeys>& a,
                       const std::vector<OpKeys>& b) {
  BufferPairs buffers;
  for (const OpPair& pair : pairs) join_buffers(buffers, a[pair.a], b[pair.b]);
  return buffers;
}

}  // namespace

std::string_view name_of(MatchedBy matched_by) noexcept {
  return find_name(kMatchedBy, matched_by);
}

Alignment align(const OpStream& a, const OpStream& b) {
  const std::vector<OpKeys> keys_a = keys_of(a);
  const std::vector<OpKeys> keys_b = keys_of(b);
  if (!comes_before(keys_b, keys_a)) {
    std::vector<OpPair> pairs = Aligner(a, keys_a, keys_b).take();
    BufferPairs buffers = buffers_of(pairs, keys_a, keys_b);
    return {std::move(pairs), std::move(buffers)};
  }
  std::vector<OpPair> pairs = Aligner(b, keys_b, keys_a).take();
  BufferPairs buffers = buffers_of(pairs, keys_b, keys_a).swapped();
  for (OpPair& pair : pairs) std::swap(pair.a, pair.b);
  std::ranges::sort(pairs, {}, &OpPair::a);
  return {std::move(pairs), std::move(buffers)};
}

}  // namespace steptape::diff
