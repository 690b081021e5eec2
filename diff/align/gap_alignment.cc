#include "diff/align/gap_alignment.h"

#include <algorithm>
#include <array>
#include <utility>

namespace steptape::diff {
namespace {

constexpr std::size_t kMaxCells = std::size_t{128} * 128;

// A change costs as much as a removal, and a little more, so that of two ways that cost the same
// the one with fewer changes is taken.
constexpr std::uint32_t kOneSided = 1000;
constexpr std::uint32_t kChange = 1001;

}  // namespace

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

}  // namespace steptape::diff
