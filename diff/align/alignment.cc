#include "diff/align/alignment.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "diff/align/gap_alignment.h"
#include "diff/align/op_keys.h"
#include "trace/named.h"

namespace steptape::diff {
namespace {

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
