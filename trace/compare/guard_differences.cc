#include "trace/compare/guard_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "trace/compare/guard_list.h"

namespace steptape::trace {
namespace {

/// Kind and path, and which of the guards that have both.
using GuardKey = std::tuple<GuardKind, std::string, std::size_t>;

std::vector<GuardKey> keys_of(const std::vector<Guard>& guards) {
  std::map<std::pair<GuardKind, std::string>, std::size_t> seen;
  std::vector<GuardKey> keys;
  keys.reserve(guards.size());
  for (const Guard& guard : guards) {
    keys.emplace_back(guard.kind, guard.path, seen[{guard.kind, guard.path}]++);
  }
  return keys;
}

bool hold_together(const Guard& a, const Guard& b) {
  if (!a.also_holds.empty() && a.also_holds == b.also_holds) return true;
  return a.expected == b.expected && a.also_holds.empty() == b.also_holds.empty();
}

class GuardComparison {
 public:
  GuardComparison(const Recording& a, const Recording& b)
      : a_(guards_of(a)), b_(guards_of(b)), keys_of_b_(keys_of(b_)) {
    for (std::size_t i = 0; i < b_.size(); ++i) position_in_b_.emplace(keys_of_b_[i], i);
  }

  std::vector<GuardDifference> take() {
    const std::vector<GuardKey> keys = keys_of(a_);
    std::vector<std::size_t> partner(a_.size(), b_.size());
    std::vector<bool> in_both(b_.size(), false);
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const auto found = position_in_b_.find(keys[i]);
      if (found == position_in_b_.end()) continue;
      partner[i] = found->second;
      in_both[found->second] = true;
      if (!hold_together(a_[i], b_[found->second])) objects_.insert(a_[i].object);
    }
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (partner[i] == b_.size()) {
        add_lonely(a_[i], a_[i].expected, kAbsent);
      } else if (!hold_together(a_[i], b_[partner[i]])) {
        add(a_[i], a_[i].expected, b_[partner[i]].expected);
      }
    }
    for (std::size_t i = 0; i < b_.size(); ++i) {
      if (!in_both[i]) add_lonely(b_[i], kAbsent, b_[i].expected);
    }
    return std::move(differences_);
  }

 private:
  void add(const Guard& guard, const std::string& expected, const std::string& found) {
    differences_.push_back({{guard.path, expected, found}, guard.kind});
  }
  /// A guard that one of the recordings alone has: told once for its object, and not where that
  /// differs anyway.
  void add_lonely(const Guard& guard, const std::string& expected, const std::string& found) {
    if (objects_.insert(guard.object).second) add(guard, expected, found);
  }

  std::vector<Guard> a_, b_;
  std::vector<GuardKey> keys_of_b_;
  std::map<GuardKey, std::size_t> position_in_b_;
  std::unordered_set<std::string> objects_;  ///< that are known to differ
  std::vector<GuardDifference> differences_;
};

}  // namespace

std::vector<GuardDifference> guard_differences(const Recording& a, const Recording& b) {
  return GuardComparison(a, b).take();
}

std::string text_of(std::span<const GuardDifference> differences, std::size_t most) {
  if (differences.empty()) return "nothing that a recording holds";
  most = std::max<std::size_t>(most, 1);
  std::string text;
  for (const GuardDifference& difference : differences.first(std::min(most, differences.size()))) {
    text += fmt::format("{}{} {} → {}", text.empty() ? "" : ", ", difference.path,
                        difference.expected, difference.found);
  }
  if (differences.size() > most) text += fmt::format(" and {} more", differences.size() - most);
  return text;
}

}  // namespace steptape::trace
