#include "diff/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

/// "float32 [8, 4]" for a tensor, the value for anything else.
std::string words_of_state(const trace::Recording& recording, const trace::Value& value) {
  const trace::Tensor* tensor = recording.find_tensor(value);
  return tensor == nullptr ? words_of(value) : words_of_geometry(*tensor);
}

/// Compares two optimizers of one path.
class LayoutComparison {
 public:
  LayoutComparison(const trace::Recording& a, const trace::OptimizerLayout& x,
                   const trace::Recording& b, const trace::OptimizerLayout& y,
                   std::vector<LayoutDifference>& out)
      : a_(a), x_(x), b_(b), y_(y), out_(out) {}

  void run() {
    if (x_.type != y_.type) add_of_groups(x_.path + ".type", x_.type, y_.type);
    compare_parameters();
    const std::size_t groups = std::min(x_.groups.size(), y_.groups.size());
    for (std::size_t g = 0; g < groups; ++g) compare_hyperparameters(g);
    compare_state();
  }

 private:
  using Groups = std::map<std::string_view, std::size_t>;  ///< by parameter

  static Groups groups_of(const trace::OptimizerLayout& layout) {
    Groups groups;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      for (const std::string& parameter : layout.groups[g].parameters) groups.emplace(parameter, g);
    }
    return groups;
  }

  std::string place_in(const Groups& groups, std::string_view parameter) const {
    const auto found = groups.find(parameter);
    return found == groups.end() ? std::string(trace::kAbsent)
                                 : trace::group_path(x_.path, found->second);
  }

  void compare_parameters() {
    const Groups before = groups_of(x_);
    const Groups now = groups_of(y_);
    const std::size_t moved = out_.size();
    for (const auto& [parameter, group] : before) {
      const auto found = now.find(parameter);
      if (found != now.end() && found->second == group) continue;
      add_of_groups(std::string(parameter), trace::group_path(x_.path, group),
                    place_in(now, parameter));
    }
    for (const auto& [parameter, group] : now) {
      if (before.contains(parameter)) continue;
      add_of_groups(std::string(parameter), trace::kAbsent, trace::group_path(x_.path, group));
    }
    if (out_.size() != moved) return;
    for (std::size_t g = 0; g < std::max(x_.groups.size(), y_.groups.size()); ++g) compare_order(g);
  }

  void compare_order(std::size_t g) {
    const std::string path = trace::group_path(x_.path, g);
    if (g >= x_.groups.size() || g >= y_.groups.size()) {
      add_of_groups(path, g < x_.groups.size() ? "a group" : trace::kAbsent,
                    g < y_.groups.size() ? "a group" : trace::kAbsent);
      return;
    }
    const auto& before = x_.groups[g].parameters;
    const auto& now = y_.groups[g].parameters;
    const auto [first, other] = std::ranges::mismatch(before, now);
    if (first == before.end() && other == now.end()) return;
    add_of_groups(fmt::format("{}.params[{}]", path, std::distance(before.begin(), first)),
                  first == before.end() ? trace::kAbsent : *first,
                  other == now.end() ? trace::kAbsent : *other);
  }

  void compare_hyperparameters(std::size_t g) {
    const auto& before = x_.groups[g].hyperparameters;
    const auto& now = y_.groups[g].hyperparameters;
    const auto compare = [&](const std::string& name, const trace::Value* x,
                             const trace::Value* y) {
      if (x != nullptr && y != nullptr && *x == *y) return;
      add(trace::group_path(x_.path, g) + "." + name,
          x == nullptr ? std::string(trace::kAbsent) : words_of(*x),
          y == nullptr ? std::string(trace::kAbsent) : words_of(*y));
    };
    const auto find = [](const std::vector<trace::NamedValue>& values, const std::string& name) {
      const auto found = std::ranges::find(values, name, &trace::NamedValue::name);
      return found == values.end() ? nullptr : &found->value;
    };
    for (const trace::NamedValue& named : before)
      compare(named.name, &named.value, find(now, named.name));
    for (const trace::NamedValue& named : now) {
      if (find(before, named.name) == nullptr) compare(named.name, nullptr, &named.value);
    }
  }

  using State = std::map<std::pair<std::string_view, std::string_view>, const trace::Value*>;

  static State state_of(const trace::OptimizerLayout& layout) {
    State state;
    for (const trace::OptimizerStateEntry& entry : layout.state) {
      state.emplace(std::pair(std::string_view(entry.parameter), std::string_view(entry.key)),
                    &entry.value);
    }
    return state;
  }

  void compare_state() {
    const State before = state_of(x_);
    const State now = state_of(y_);
    for (const auto& [place, value] : before) {
      const auto found = now.find(place);
      const std::string path =
          fmt::format("{}.{}", trace::state_path(x_.path, place.first), place.second);
      if (found == now.end()) {
        add(path, words_of_state(a_, *value), trace::kAbsent);
      } else {
        compare_entries(path, *value, *found->second);
      }
    }
    for (const auto& [place, value] : now) {
      if (before.contains(place)) continue;
      add(fmt::format("{}.{}", trace::state_path(x_.path, place.first), place.second),
          trace::kAbsent, words_of_state(b_, *value));
    }
  }

  void compare_entries(const std::string& path, const trace::Value& x, const trace::Value& y) {
    const bool same_kind = x.data.index() == y.data.index();
    const bool is_tensor = std::holds_alternative<trace::TensorRef>(x.data);
    if (same_kind && !is_tensor) return;
    const std::string before = words_of_state(a_, x);
    const std::string now = words_of_state(b_, y);
    if (before != now) add(path, before, now);
  }

  void add(std::string path, std::string_view expected, std::string_view found,
           bool is_of_groups = false) {
    out_.push_back({{std::move(path), std::string(expected), std::string(found)}, is_of_groups});
  }

  void add_of_groups(std::string path, std::string_view expected, std::string_view found) {
    add(std::move(path), expected, found, true);
  }

  const trace::Recording& a_;
  const trace::OptimizerLayout& x_;
  const trace::Recording& b_;
  const trace::OptimizerLayout& y_;
  std::vector<LayoutDifference>& out_;
};

}  // namespace

std::vector<LayoutDifference> layout_differences(const trace::Recording& a,
                                                 const trace::Recording& b) {
  std::vector<LayoutDifference> differences;
  for (const trace::OptimizerLayout& x : a.optimizers) {
    const auto y = std::ranges::find(b.optimizers, x.path, &trace::OptimizerLayout::path);
    if (y == b.optimizers.end()) {
      differences.push_back({{x.path, x.type, trace::kAbsent}, true});
    } else {
      LayoutComparison(a, x, b, *y, differences).run();
    }
  }
  for (const trace::OptimizerLayout& y : b.optimizers) {
    const auto x = std::ranges::find(a.optimizers, y.path, &trace::OptimizerLayout::path);
    if (x != a.optimizers.end()) continue;
    differences.push_back({{y.path, trace::kAbsent, y.type}, true});
  }
  return differences;
}

}  // namespace steptape::diff
