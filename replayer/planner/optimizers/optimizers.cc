#include "replayer/planner/optimizers/optimizers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "replayer/planner/analysis/writes.h"
#include "trace/numbers.h"
#include "trace/refusals.h"

namespace steptape::replayer {
namespace {

/// Ops from `first` up to `end`.
struct OpRange {
  std::size_t first, end;
};

/// What a buffer is to an optimizer that a lowering knows.
struct Owner {
  std::size_t layout;
  std::size_t group;
  const std::string* parameter;
  bool is_state;
};
using Owners = std::multimap<trace::BufferId, Owner>;

Owners owners_of(const trace::Recording& recording) {
  Owners owners;
  std::map<std::string, trace::TensorId> tracked;
  for (const trace::Tracked& at : recording.tracked) tracked.emplace(at.path, at.tensor);
  const auto add = [&](trace::TensorId id, const Owner& owner) {
    if (id != trace::kNoTensor) owners.emplace(recording.tensors[id].buffer, owner);
  };
  for (std::size_t l = 0; l < recording.optimizers.size(); ++l) {
    const trace::OptimizerLayout& layout = recording.optimizers[l];
    if (lowering_of(layout.type) == nullptr) continue;
    std::multimap<std::string_view, Owner> by_parameter;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      for (const std::string& parameter : layout.groups[g].parameters) {
        const Owner owner{l, g, &parameter, false};
        by_parameter.emplace(parameter, owner);
        if (const auto at = tracked.find(parameter); at != tracked.end()) add(at->second, owner);
      }
    }
    for (const trace::OptimizerStateEntry& entry : layout.state) {
      const auto* tensor = std::get_if<trace::TensorRef>(&entry.value.data);
      if (tensor == nullptr) continue;
      const auto [first, last] = by_parameter.equal_range(entry.parameter);
      for (auto owner = first; owner != last; ++owner) {
        add(tensor->id, {l, owner->second.group, owner->second.parameter, true});
      }
    }
  }
  return owners;
}

std::set<std::string> written_parameters(const trace::Recording& recording) {
  std::set<std::string> paths;
  for (const trace::Op& op : recording.ops) {
    for (const trace::BufferId id : written_by(recording, op)) {
      const trace::Buffer& buffer = recording.buffers[id];
      if (buffer.role == trace::Role::kParameter) paths.insert(buffer.path);
    }
  }
  return paths;
}

bool holds_any(const trace::OptimizerLayout& layout, const std::set<std::string>& paths) {
  return std::ranges::any_of(layout.groups, [&](const trace::ParameterGroup& group) {
    return std::ranges::any_of(group.parameters,
                               [&](const std::string& path) { return paths.contains(path); });
  });
}

class Binder {
 public:
  explicit Binder(trace::Recording& recording)
      : recording_(recording), bindings_(recording), owners_(owners_of(recording)) {}

  void bind() {
    const std::set<std::string> written = written_parameters(recording_);
    for (trace::OptimizerLayout& layout : recording_.optimizers) {
      // one that updates nothing here has no numbers to enter the step with
      layout.has_formulas = lowering_of(layout.type) != nullptr || !holds_any(layout, written);
    }
    for (std::size_t i = 0; i < recording_.ops.size(); ++i) {
      if (const std::size_t end = match_at(i); end > i) i = end - 1;
    }
  }

  std::vector<OpRange> take_matched() { return std::move(matched_); }

 private:
  /// The end of the update that op `i` belongs to, or `i` when it belongs to none. Updates by
  /// optimizers without state look alike: of several that fit, those whose formulas give the
  /// recorded bits count, and the plan holds while these stay equal.
  std::size_t match_at(std::size_t i) {
    std::vector<Match> matches;
    std::string problem;
    for (const trace::BufferId buffer : written_by(recording_, recording_.ops[i])) {
      const auto [first, last] = owners_.equal_range(buffer);
      for (auto at = first; at != last; ++at) match(at->second, i, matches, problem);
    }
    const auto fits = [](const Match& match) { return match.update.gives_recorded(); };
    const auto best = std::ranges::find_if(matches, fits);
    if (best == matches.end()) {
      if (!matches.empty()) problem = matches.front().update.bits_problem();
      if (!problem.empty()) refuse(i, std::move(problem));
      return i;
    }
    for (auto other = best + 1; other != matches.end(); ++other) {
      if (fits(*other)) best->update.require_same(other->update);
    }
    take(*best);
    return end_;
  }

  struct Match {
    Owner owner;
    std::size_t first;
    Update update;
  };

  /// An update starts with the op that writes first, or with the one before it, which adds the
  /// weight decay to the gradient.
  void match(const Owner& owner, std::size_t i, std::vector<Match>& matches, std::string& problem) {
    const trace::OptimizerLayout& layout = recording_.optimizers[owner.layout];
    std::size_t farthest = 0;
    for (const std::size_t back : {0U, 1U}) {
      if (i < back + end_) continue;
      Update update(recording_, bindings_, layout, owner.group, *owner.parameter, i - back,
                    updates_[{owner.layout, *owner.parameter}]);
      lowering_of(layout.type)->match(update);
      if (update.matched() && update.end() > i) {
        matches.push_back({owner, i - back, std::move(update)});
        return;
      }
      // a parameter may be written by others, which is looked into later; state may not
      if (owner.is_state && (problem.empty() || update.end() > farthest)) {
        problem = "`" + layout.path + "`: " + update.problem();
        farthest = update.end();
      }
    }
  }

  void take(Match& match) {
    const trace::OptimizerLayout& layout = recording_.optimizers[match.owner.layout];
    const std::string& parameter = *match.owner.parameter;
    match.update.commit();
    if (lowering_of(layout.type)->counts_steps) {
      bindings_.advance(trace::state_path(layout.path, parameter) + ".step");
    }
    end_ = match.update.end();
    matched_.push_back({match.first, end_});
    ++updates_[{match.owner.layout, parameter}];
  }

  void refuse(std::size_t op, std::string problem) {
    recording_.refusals.push_back(
        trace::refusal_at(recording_, op, RefusalCode::kOptimizerUnsupported, std::move(problem)));
  }

  trace::Recording& recording_;
  Bindings bindings_;
  Owners owners_;
  std::map<std::pair<std::size_t, std::string>, std::int64_t> updates_;
  std::size_t end_ = 0;  ///< of the update matched last
  std::vector<OpRange> matched_;
};

/// Follows what comes from gradients through the ops after backward, to find parameters that are
/// updated by ops which no lowering has matched: the numbers in them would be frozen.
class UnownedUpdates {
 public:
  /// `matched`: the ops that lowerings have matched.
  UnownedUpdates(const trace::Recording& recording, std::vector<OpRange> matched)
      : recording_(recording),
        comes_from_gradient_(recording.buffers.size(), false),
        matched_(std::move(matched)) {
    for (trace::BufferId id = 0; id < recording.buffers.size(); ++id) {
      comes_from_gradient_[id] = recording.buffers[id].role == trace::Role::kGradient;
    }
  }

  std::optional<Refusal> find() {
    for (std::size_t i = 0; i < recording_.ops.size(); ++i) {
      const trace::Op& op = recording_.ops[i];
      const bool from_gradient = op.phase == trace::Phase::kBackward || reads_gradient(op);
      if (!from_gradient) continue;
      for (const trace::BufferId id : written_by(recording_, op)) {
        const trace::Buffer& buffer = recording_.buffers[id];
        if (buffer.role == trace::Role::kParameter) {
          if (!is_matched(i) && !is_refused(buffer.path)) return refusal(i, buffer.path);
        } else if (buffer.role != trace::Role::kOptimizerState) {
          comes_from_gradient_[id] = true;
        }
      }
      for_each_buffer(recording_, op.outputs, [&](trace::BufferId id) {
        const trace::Role role = recording_.buffers[id].role;
        if (role == trace::Role::kTemporary || role == trace::Role::kResult) {
          comes_from_gradient_[id] = true;
        }
      });
    }
    return std::nullopt;
  }

 private:
  bool is_matched(std::size_t op) const {
    return std::ranges::any_of(
        matched_, [op](const OpRange& range) { return op >= range.first && op < range.end; });
  }

  /// Its optimizer is one that nobody knows, which is refused by name.
  bool is_refused(const std::string& parameter) const {
    return std::ranges::any_of(recording_.optimizers, [&](const trace::OptimizerLayout& layout) {
      return !layout.has_formulas && holds_any(layout, {parameter});
    });
  }

  bool reads_gradient(const trace::Op& op) const {
    bool reads = false;
    for_each_buffer(recording_, op.inputs,
                    [&](trace::BufferId id) { reads |= comes_from_gradient_[id]; });
    return reads;
  }

  Refusal refusal(std::size_t i, const std::string& parameter) const {
    return trace::refusal_at(
        recording_, i, RefusalCode::kUntrackedWrite,
        "parameter " + parameter +
            " is updated from its gradient, and not as any tracked optimizer that is known does "
            "it: the numbers in its update would be frozen");
  }

  const trace::Recording& recording_;
  std::vector<bool> comes_from_gradient_;
  std::vector<OpRange> matched_;
};

}  // namespace

bool is_known_optimizer(const std::string& type) { return lowering_of(type) != nullptr; }

std::string update_step_of(const std::string& path) { return path + ".step()"; }

void bind_optimizers(trace::Recording& recording) {
  Binder binder(recording);
  binder.bind();
  UnownedUpdates unowned(recording, binder.take_matched());
  if (auto refusal = unowned.find()) recording.refusals.push_back(*std::move(refusal));
}

void refuse_optimizers(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  const std::set<std::string> written = written_parameters(recording);
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    if (layout.has_formulas || !holds_any(layout, written)) continue;
    refusals.push_back(
        trace::make_refusal(RefusalCode::kOptimizerUnsupported,
                            "`" + layout.path + "` is a " + layout.type +
                                ", and how it computes the numbers of its ops is not known"));
  }
}

}  // namespace steptape::replayer
