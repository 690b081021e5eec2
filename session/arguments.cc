#include "session/arguments.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "replayer/planner/numbers/bindings.h"
#include "replayer/planner/numbers/windows.h"
#include "trace/numbers.h"
#include "trace/refusals.h"
#include "trace/windows.h"

namespace steptape::session {
namespace {

struct ToArgument {
  live::Argument operator()(at::Tensor& tensor) const { return {std::move(tensor), {}, true}; }
  live::Argument operator()(bool value) const { return {{}, {value}, false}; }
  live::Argument operator()(std::int64_t value) const { return {{}, {value}, false}; }
  live::Argument operator()(double value) const { return {{}, {trace::Real{value}}, false}; }
  live::Argument operator()(std::string& value) const { return {{}, {std::move(value)}, false}; }
};

struct ToValue {
  trace::Value operator()(bool value) const { return {value}; }
  trace::Value operator()(std::int64_t value) const { return {value}; }
  trace::Value operator()(double value) const { return {trace::Real{value}}; }
};

}  // namespace

live::Argument argument_of(pack::Leaf&& leaf) { return std::visit(ToArgument{}, leaf); }

std::vector<live::Argument> arguments_of(std::vector<pack::Leaf> leaves) {
  std::vector<live::Argument> arguments;
  arguments.reserve(leaves.size());
  for (pack::Leaf& leaf : leaves) arguments.push_back(argument_of(std::move(leaf)));
  return arguments;
}

trace::Value value_of(const pack::Number& number) { return std::visit(ToValue{}, number); }

pack::Number returned_of(const trace::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return *integer;
  return trace::number_of(value);
}

pack::Number number_of(double value, const trace::Value& recorded) {
  if (std::holds_alternative<bool>(recorded.data)) return value != 0;
  if (std::holds_alternative<std::int64_t>(recorded.data)) return static_cast<std::int64_t>(value);
  return value;
}

namespace {

class Binder {
 public:
  explicit Binder(recorder::Recorded& recorded)
      : recorded_(recorded),
        recording_(recorded.recording),
        bindings_(recording_),
        leaves_(hints().leaves().size(), trace::kNone) {}

  void bind() {
    for (const recorder::FrontendHints::Site& site : hints().sites()) {
      if (!says_where(site)) bind(site);
    }
    bind_views();
    for (const trace::Index formula : unsure_) recording_.proofs.push_back({formula, {}, false});
    for (const auto& [position, formula] : hints().said.returned) bind(position, formula);
    for (const auto& [position, path] : hints().said.becoming) {
      if (position < recording_.numbers.size()) recording_.numbers[position].becomes = path;
    }
    recording_.held = hints().said.held_places;
    std::ranges::copy_if(
        hints().said.places, std::back_inserter(recording_.places),
        [this](const trace::HeldInput& place) {
          // one that the step has changed as it ran, and is refused for
          const bool is_known =
              (place.input == trace::kNone || place.input < recording_.inputs.size()) &&
              (place.result == trace::kNone || place.result < recording_.results.size());
          if (!is_known) return false;
          if (place.input == trace::kNone)
            return recording_.results[place.result] != trace::kNoTensor;
          return tensor_in(recording_.inputs[place.input].value) != trace::kNoTensor;
        });
    trace::carry_on(recording_, [](const trace::HeldInput&) { return true; });
    for (const recorder::FrontendHints::Condition& condition : hints().conditions()) {
      bindings_.require(renumbered(condition.formula), condition.is_nonzero);
    }
    for (const auto& [path, by] : hints().said.advances) bindings_.advance(path, by);
    for (const trace::Index op : hints().said.followed_reads) {
      followed_.insert(trace::read_path(op));
    }
    for (const trace::Index leaf : hints().said.escaped) pin(leaf);
    for (const trace::Formula& formula : held_) hold(formula);
    // what a front end follows and the step has not read may be anything
    for (const trace::Leaf& leaf : hints().leaves()) {
      const bool is_given = leaf.kind == trace::LeafKind::kHostValue ||
                            leaf.kind == trace::LeafKind::kArgument ||
                            hints().is_assigned(leaf.path);
      if (is_given) bindings_.leaf(leaf.kind, leaf.path);
    }
    free_reads();
  }

 private:
  const recorder::FrontendHints& hints() const { return recorded_.hints; }

  void bind(const recorder::FrontendHints::Site& site) {
    const trace::Formula formula = renumbered(site.formula);
    if (bindings_.gives_recorded(formula, site.site)) {
      const trace::Index bound = bindings_.bind(site.site, formula);
      // of what a view is, a run knows all
      if (!site.is_all && !says_where(site)) unsure_.insert(bound);
      return;
    }
    const std::string message =
        "a number of the op is not what " + trace::text_of(formula, recording_.leaves) + " gives";
    recording_.refusals.push_back(
        site.site.op == trace::kNone
            ? trace::make_refusal(RefusalCode::kScalarVaries, message)
            : trace::refusal_at(recording_, site.site.op, RefusalCode::kScalarVaries, message));
  }

  bool says_where(const recorder::FrontendHints::Site& site) const {
    if (site.site.op == trace::kNone) return false;
    return trace::says_where(recording_.operator_of(recording_.ops[site.site.op]),
                             site.site.argument);
  }

  /// Numbers that say where a view begins: each run computes it. Where that cannot be, they must be
  /// the recorded ones.
  void bind_views() {
    std::set<trace::Index> moving, kept;
    for (const recorder::FrontendHints::Site& site : hints().sites()) {
      if (says_where(site)) (is_known_at_entry(site) ? moving : kept).insert(site.site.op);
    }
    std::erase_if(moving, [&](trace::Index op) {
      const bool stays = kept.contains(op) || !begins_elsewhere(op);
      if (stays) kept.insert(op);
      return stays;
    });
    const std::size_t first = recording_.scalars.size();
    for (const recorder::FrontendHints::Site& site : hints().sites()) {
      if (says_where(site) && moving.contains(site.site.op)) bind(site);
    }
    const std::set<trace::Index> none =
        replayer::make_windows(recording_, moving, recorded_.kept_buffers);
    const auto stays = [&none](const trace::ScalarSite& site) { return none.contains(site.op); };
    recording_.scalars.erase(
        std::remove_if(recording_.scalars.begin() + static_cast<std::ptrdiff_t>(first),
                       recording_.scalars.end(), stays),
        recording_.scalars.end());
    kept.insert(none.begin(), none.end());
    for (const recorder::FrontendHints::Site& site : hints().sites()) {
      if (says_where(site) && kept.contains(site.site.op)) held_.push_back(site.formula);
    }
  }

  /// What follows this formula must be what it is; what it has of reads, they themselves.
  void hold(const trace::Formula& formula) {
    if (!trace::waits_for_read(formula, hints().leaves())) {
      const trace::Formula own = renumbered(formula);
      const trace::Formula stays = trace::same_bits(own, trace::constant(bindings_.recorded(own)));
      if (trace::is_well_formed(stays, recording_.leaves.size()))
        return bindings_.require(stays, true);
    }
    for (const trace::Index leaf : trace::leaves_of(formula)) pin(leaf);
  }

  /// Whether the number is that of where the view begins, not of where it ends alone.
  bool begins_elsewhere(trace::Index op) const {
    return std::ranges::any_of(hints().sites(), [op](const recorder::FrontendHints::Site& site) {
      return site.site.op == op && site.site.argument == trace::kBeginsAt;
    });
  }

  /// Whether a run knows where the view begins before it begins, and the number stands nowhere else
  /// among the op's.
  bool is_known_at_entry(const recorder::FrontendHints::Site& site) const {
    return !trace::waits_for_read(site.formula, hints().leaves()) && !site.is_doubtful;
  }

  void bind(std::size_t position, const trace::Formula& returned) {
    if (position >= recording_.numbers.size()) return;
    trace::Number& number = recording_.numbers[position];
    const trace::Formula formula = renumbered(returned);
    const trace::Real gives{bindings_.recorded(formula)};
    if (gives == trace::Real{trace::number_of(number.value)}) {
      // Python raises where a number is finite no longer
      const trace::Formula is_finite = trace::same_bits(formula - formula, trace::constant(0));
      if (!trace::is_well_formed(is_finite, recording_.leaves.size()))
        return held_.push_back(returned);
      number.formula = bindings_.formula(formula);
      if (bindings_.recorded(is_finite) != 0) bindings_.require(is_finite, true);
      return;
    }
    recording_.refusals.push_back(trace::make_refusal(
        RefusalCode::kScalarVaries, "a number that the step returned is not what " +
                                        trace::text_of(formula, recording_.leaves) + " gives"));
  }

  trace::Formula renumbered(trace::Formula formula) {
    for (trace::Index& position : trace::leaves_of(formula)) {
      trace::Index& known = leaves_[position];
      if (known == trace::kNone) {
        const trace::Leaf& leaf = hints().leaves()[position];
        if (leaf.kind == trace::LeafKind::kHostRead) followed_.insert(leaf.path);
        known = bindings_.leaf(leaf.kind, leaf.path);
      }
      position = known;
    }
    return formula;
  }

  /// A read that went elsewhere as well stays checked; any other number must be the recorded one.
  void pin(trace::Index position) {
    const trace::Leaf& leaf = hints().leaves()[position];
    if (leaf.kind == trace::LeafKind::kHostRead) {
      followed_.erase(leaf.path);
      return;
    }
    const trace::Formula number = trace::leaf(bindings_.leaf(leaf.kind, leaf.path));
    const trace::Formula recorded = trace::constant(bindings_.recorded(number));
    bindings_.require(trace::same_bits(number, recorded), true);
  }

  void free_reads() {
    for (trace::HostRead& read : recording_.reads) {
      if (followed_.contains(trace::read_path(read.op))) read.use = trace::ReadUse::kFree;
    }
  }

  recorder::Recorded& recorded_;
  trace::Recording& recording_;
  replayer::Bindings bindings_;
  std::vector<trace::Index> leaves_;  ///< of the hints, as the recording numbers them
  std::set<std::string> followed_;    ///< paths of host reads
  /// What must stay as it is: where views begin that no plan can move, and what is returned and too
  /// deep.
  std::vector<trace::Formula> held_;
  /// Formulas of numbers of which ops or their backward may make something else as well.
  std::set<trace::Index> unsure_;
};

}  // namespace

void bind_followed_numbers(recorder::Recorded& recorded) { Binder(recorded).bind(); }

}  // namespace steptape::session
