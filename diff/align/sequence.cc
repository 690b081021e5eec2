#include "diff/align/sequence.h"

#include <algorithm>
#include <unordered_map>

namespace steptape::diff {
namespace {

using Items = std::span<const std::uint64_t>;

constexpr int kMaxDistance = 1024;

/// How far the greedy search gets from the starts of two sequences, and its way there.
class Search {
 public:
  Search(Items a, Items b) : a_(a), b_(b) {}

  /// Whether it reached both ends.
  bool run() {
    for (int d = 0; d <= kMaxDistance; ++d) {
      rows_.emplace_back(2 * static_cast<std::size_t>(d) + 1, 0);
      for (int k = -d; k <= d; k += 2) {
        if (step(d, k)) return true;
      }
    }
    return false;
  }

  /// Matches on the way to where it got furthest, in order.
  std::vector<Match> matches() const {
    std::vector<Match> found;
    int x = best_x_;
    int k = best_k_;
    for (int d = best_d_; d >= 0; --d) {
      const int from = d == 0 ? 0 : entry(d, k);
      for (; x > from; --x) found.push_back({index(x - 1), index(x - 1 - k)});
      if (d == 0) break;
      const bool inserts = comes_from_above(d, k);
      k += inserts ? 1 : -1;
      x = inserts ? from : from - 1;
    }
    std::ranges::reverse(found);
    return found;
  }

  std::size_t reached_a() const { return static_cast<std::size_t>(best_x_); }
  std::size_t reached_b() const { return static_cast<std::size_t>(best_x_ - best_k_); }

 private:
  static std::size_t position(int number) { return static_cast<std::size_t>(number); }
  static trace::Index index(int position) { return static_cast<trace::Index>(position); }
  /// The furthest x on diagonal k after d edits.
  int at(int d, int k) const { return rows_[static_cast<std::size_t>(d)][position(k + d)]; }
  bool comes_from_above(int d, int k) const {
    return k == -d || (k != d && at(d - 1, k - 1) < at(d - 1, k + 1));
  }
  /// x on diagonal k just after the d-th edit.
  int entry(int d, int k) const {
    return comes_from_above(d, k) ? at(d - 1, k + 1) : at(d - 1, k - 1) + 1;
  }

  bool step(int d, int k) {
    int x = d == 0 ? 0 : entry(d, k);
    const int ends_a = static_cast<int>(a_.size());
    const int ends_b = static_cast<int>(b_.size());
    while (x < ends_a && x - k < ends_b &&
           a_[static_cast<std::size_t>(x)] == b_[static_cast<std::size_t>(x - k)]) {
      ++x;
    }
    rows_.back()[position(k + d)] = x;
    if (x > ends_a || x - k > ends_b) return false;
    if (2 * x - k > 2 * best_x_ - best_k_ || d == 0) {
      best_x_ = x;
      best_k_ = k;
      best_d_ = d;
    }
    return x == ends_a && x - k == ends_b;
  }

  Items a_, b_;
  std::vector<std::vector<int>> rows_;  ///< by number of edits d: x on the diagonals from -d to d
  int best_x_ = 0;
  int best_k_ = 0;
  int best_d_ = 0;
};

/// Items that stand once in either sequence, those of them that have one order.
std::vector<Match> anchors_of(Items a, Items b) {
  struct Count {
    trace::Index in_a = 0, in_b = 0, at_b = trace::kNone;
  };
  std::unordered_map<std::uint64_t, Count> counts;
  for (const std::uint64_t item : a) ++counts[item].in_a;
  for (std::size_t i = 0; i < b.size(); ++i) {
    Count& count = counts[b[i]];
    ++count.in_b;
    count.at_b = static_cast<trace::Index>(i);
  }
  std::vector<Match> unique;
  std::vector<trace::Index> order;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Count& count = counts[a[i]];
    if (count.in_a != 1 || count.in_b != 1) continue;
    unique.push_back({static_cast<trace::Index>(i), count.at_b});
    order.push_back(count.at_b);
  }
  std::vector<Match> anchors;
  for (const trace::Index i : longest_increasing(order)) anchors.push_back(unique[i]);
  return anchors;
}

class Matcher {
 public:
  Matcher(Items a, Items b) : a_(a), b_(b) {}

  std::vector<Match> take() {
    match({0, 0}, {static_cast<trace::Index>(a_.size()), static_cast<trace::Index>(b_.size())});
    return std::move(found_);
  }

 private:
  Items slice_a(Match from, Match to) const { return a_.subspan(from.a, to.a - from.a); }
  Items slice_b(Match from, Match to) const { return b_.subspan(from.b, to.b - from.b); }

  void match(Match from, Match to) {
    while (from.a < to.a && from.b < to.b && a_[from.a] == b_[from.b]) {
      found_.push_back({from.a++, from.b++});
    }
    Match end = to;
    while (end.a > from.a && end.b > from.b && a_[end.a - 1] == b_[end.b - 1]) --end.a, --end.b;
    if (end.a > from.a && end.b > from.b) match_middle(from, end);
    for (; end.a < to.a; ++end.a, ++end.b) found_.push_back(end);
  }

  void match_middle(Match from, Match to) {
    Search search(slice_a(from, to), slice_b(from, to));
    if (search.run()) return add(from, search.matches());
    const std::vector<Match> anchors = anchors_of(slice_a(from, to), slice_b(from, to));
    if (anchors.empty()) return follow(from, to, search);
    Match next = from;
    for (const Match& anchor : anchors) {
      const Match at = {from.a + anchor.a, from.b + anchor.b};
      if (at.a < next.a || at.b < next.b) continue;
      match(next, at);
      found_.push_back(at);
      next = {at.a + 1, at.b + 1};
    }
    match(next, to);
  }

  /// Takes the way that got furthest, and searches on from there.
  void follow(Match from, Match to, const Search& search) {
    Search current = search;
    for (;;) {
      add(from, current.matches());
      from.a += static_cast<trace::Index>(current.reached_a());
      from.b += static_cast<trace::Index>(current.reached_b());
      current = Search(slice_a(from, to), slice_b(from, to));
      if (current.run()) return add(from, current.matches());
    }
  }

  void add(Match from, const std::vector<Match>& matches) {
    for (const Match& match : matches) found_.push_back({from.a + match.a, from.b + match.b});
  }

  Items a_, b_;
  std::vector<Match> found_;
};

}  // namespace

std::vector<Match> common_subsequence(std::span<const std::uint64_t> a,
                                      std::span<const std::uint64_t> b) {
  return Matcher(a, b).take();
}

std::vector<trace::Index> longest_increasing(std::span<const trace::Index> values) {
  std::vector<trace::Index> ends;  // where the best subsequence of each length ends
  std::vector<trace::Index> before(values.size(), trace::kNone);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto end =
        std::ranges::lower_bound(ends, values[i], {}, [&](trace::Index e) { return values[e]; });
    if (end != ends.begin()) before[i] = *(end - 1);
    if (end == ends.end()) {
      ends.push_back(static_cast<trace::Index>(i));
    } else {
      *end = static_cast<trace::Index>(i);
    }
  }
  std::vector<trace::Index> positions;
  for (trace::Index i = ends.empty() ? trace::kNone : ends.back(); i != trace::kNone; i = before[i])
    positions.push_back(i);
  std::ranges::reverse(positions);
  return positions;
}

}  // namespace steptape::diff
