#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "live/scoped.h"
#include "steptape/refusal.h"
#include "trace/formula.h"
#include "trace/model.h"

namespace steptape::recorder {

/// What a front end knows about the step that is being recorded and its ops cannot show: where host
/// numbers come from, whose line runs, which module, and what the step does to the host. While
/// recording it is written by the thread that runs the step; the session then binds what it says.
/// A step of C++ leaves it empty.
class FrontendHints {
 public:
  FrontendHints() = default;
  FrontendHints(const FrontendHints&) = delete;
  FrontendHints& operator=(const FrontendHints&) = delete;
  FrontendHints(FrontendHints&&) = default;
  FrontendHints& operator=(FrontendHints&&) = default;

  /// Of the recording that is under way in this thread, or null.
  static FrontendHints* current() noexcept;
  using Scope = live::Scoped<FrontendHints*>;
  /// Makes `hints` the current ones of this thread. Null: in a thread that records, the front end
  /// is not told. It runs the step as if there was not a recording, and ops alone are written down.
  static Scope make_current(FrontendHints* hints);

  /// A number that the next ops may take, and what it follows from.
  struct Number {
    trace::Value value;
    trace::Formula formula;            ///< over the leaves of these hints
    trace::Index item = trace::kNone;  ///< its position in the list that the op is given it in
    /// Where it may stand: an index where a view begins or ends, which nothing else does that is
    /// given with it and equals it, or among the elements of a tensor of indices alone, and a value
    /// that is assigned to an item among elements, or where an op fills with it, alone.
    enum class Use { kAny, kIndex, kElement } use = Use::kAny;
  };
  /// A place of the recording that such a number stands in.
  struct Site {
    trace::ScalarSite site;
    trace::Formula formula;
    /// All that follows from the number in the call which it was given to is this: one op of the
    /// function's name ran, the number stands nowhere else in it, and autograd keeps nothing of it.
    bool is_all = false;
    bool is_doubtful = false;
  };
  struct Condition {
    trace::Formula formula;
    bool is_nonzero;
  };

  /// What the front end writes down for the session, which binds it.
  struct Said {
    /// Numbers that the step returns, by position, and what they follow.
    std::vector<std::pair<std::size_t, trace::Formula>> returned;
    /// Numbers that the step returns, by position, and the places that host values or
    /// hyperparameters are read from at which it ends with them.
    std::vector<std::pair<std::size_t, std::string>> becoming;
    /// Inputs that stand in a place of the program's, where the step may leave a result.
    std::vector<trace::HeldInput> places;
    std::vector<trace::HeldPlace> held_places;
    /// What the step adds to host numbers of optimizer state.
    std::vector<trace::Advance> advances;
    /// All that the program does with what these ops gave the host is known, though none of it may
    /// have entered an op.
    std::set<trace::Index> followed_reads;
    /// The numbers of these leaves went where they cannot be followed: they must stay what they
    /// are.
    std::set<trace::Index> escaped;
    /// Every number that varies has a known source: what is left are literals.
    bool follows_numbers = false;
    /// What the front end holds places to, as a plan will: it found this there when the step began,
    /// and two recordings that found something else there are told apart by it.
    std::map<std::string, std::string> guarded;
  };
  Said said;

  /// The step does not return the result tensors from `position` on, but leaves them at this place.
  void leave_results(std::size_t position, std::string path) {
    left_results_.emplace_back(position, std::move(path));
  }
  /// What the program knows a result tensor as.
  std::string name_of_result(std::size_t position) const {
    std::string name = "results[" + std::to_string(position) + "]";
    for (const auto& [first, path] : left_results_) {
      if (first <= position) name = "what the step leaves in `" + path + "`";
    }
    return name;
  }

  /// The front end assigns to this hyperparameter after a replay what the step did.
  void assign(std::string path) { assigned_.insert(std::move(path)); }
  bool is_assigned(const std::string& path) const { return assigned_.contains(path); }

  /// The step asks where in this memory a tensor lies: no view of it may be at another place.
  void keep_views(const c10::Storage& storage) {
    kept_.emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
  }
  bool keeps_views(const c10::StorageImpl* storage) const { return kept_.contains(storage); }

  /// The position of a leaf, for formulas.
  trace::Index leaf(trace::LeafKind kind, const std::string& path);
  /// Of the newest host read; kNone before the first.
  trace::Index newest_read() const { return reads_.empty() ? trace::kNone : reads_.back(); }

  /// Until `withdraw` these numbers may enter ops, each as often as it stands here. `function`: of
  /// torch's, to which they are given; "" for an operator of the language.
  void announce(std::vector<Number> numbers, std::string function);
  void withdraw();
  /// The program has decided by `formula`: the recording holds while that stays so.
  void require(trace::Formula formula, bool is_nonzero);
  /// How many host reads there were; those after the first `count` were made by torch's functions
  /// for themselves, and the program has not seen what they gave.
  std::size_t reads() const { return reads_.size(); }
  trace::Index read(std::size_t position) const { return reads_[position]; }
  void keep_internal(std::size_t count) {
    for (; count < reads_.size(); ++count) internal_reads_.insert(reads_[count]);
  }
  const std::set<trace::Index>& internal_reads() const { return internal_reads_; }
  /// The recording holds for one value of this leaf alone, because of the line that runs now.
  void note_held(trace::Index leaf);

  /// The host has made this memory in the step, and nothing that was there before holds it.
  void note_made(const c10::Storage& storage) {
    made_.emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
  }
  bool has_made(const c10::StorageImpl* storage) const { return made_.contains(storage); }
  /// The program has taken the state of a generator into this memory. It may set that again, and do
  /// nothing else with it: it is another one in each call.
  void note_state(const c10::Storage& storage) {
    states_.emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
  }
  bool is_state(const at::Tensor& tensor) const {
    return !states_.empty() && tensor.has_storage() &&
           states_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  /// The host looks at these bytes, which were there before the step, under this name.
  void note_looked_at(std::uintptr_t first, std::uintptr_t end, const std::string& name) {
    const auto [seen, is_new] = looked_at_.try_emplace({first, end});
    if (is_new || seen->second.ops != ops()) seen->second = {name, place(), ops()};
  }
  /// The newest at these bytes: what was written before an earlier one was written before it, too.
  struct Look {
    std::string name, place;
    std::size_t ops = 0;  ///< that had been recorded by then
  };
  using Range = std::pair<std::uintptr_t, std::uintptr_t>;
  /// By the bytes from the first to the end.
  const std::map<Range, Look>& looked_at() const { return looked_at_; }

  /// Whether ops of this thread are left out: what they make never reaches the step.
  void leave_out(bool is_left_out) { leaves_out_ = is_left_out; }
  bool leaves_out() const { return leaves_out_; }

  /// Nothing of this recording is to be kept: the front end does not know what the step reaches.
  void discard() { is_discarded_ = true; }
  bool is_discarded() const { return is_discarded_; }

  void refuse(RefusalCode code, std::string message, std::string place = {}) {
    Refusal& made = refusals_.emplace_back();
    made.code = code;
    made.message = std::move(message);
    made.place = std::move(place);
  }
  void add_effect(trace::Effect effect) { effects_.push_back(std::move(effect)); }

  /// A call of `module` begins, the newest of those that have not ended; its path is "" where
  /// nobody tracks it.
  void enter_module(std::string path, const void* module);
  /// The newest call of `module` ends, and with it those that began later and were not told to end.
  void leave_module(const void* module);
  struct ModuleCall {
    std::string path;
    std::uint32_t call = 1;    ///< of this module
    std::size_t position = 0;  ///< among all calls of modules
    const void* module = nullptr;
    /// The node of autograd's that ran when it began: what another node runs is not a part of it.
    const void* node = nullptr;
  };
  /// The calls that have not ended, outermost first.
  const std::vector<ModuleCall>& open_calls() const { return open_calls_; }
  /// Whether calls of modules are told at all.
  bool tells_calls() const { return calls_ != 0; }

  /// Tells the line of the program that runs now, "train.py:41", or "". May take a lock of its own.
  using Locate = std::string (*)();
  static void set_locator(Locate locate) noexcept;
  static std::string place();
  /// Lets go of what nothing can reach any more, in a language with a garbage collector.
  using Collect = void (*)();
  static void set_collector(Collect collect) noexcept;
  static void collect_garbage();

  // For the recorder.
  void count(const std::vector<trace::Op>& ops) { ops_ = &ops; }
  /// How many have been recorded by now.
  std::size_t ops() const { return ops_ == nullptr ? 0 : ops_->size(); }
  void note_read(trace::Index op) { reads_.push_back(op); }
  /// An op begins, "aten::add_", while numbers are announced. `has_node`: autograd keeps something
  /// for its backward.
  void note_op(std::string_view op, bool has_node);
  bool is_announcing() const { return is_announcing_; }
  /// The number at `site`, a position in `sites`, may stand elsewhere in its op.
  void doubt(std::size_t site) { sites_[site].is_doubtful = true; }
  /// What the announced ones are given to.
  const std::string& function() const { return function_; }
  /// The number at `site` follows `formula`.
  void add_site(const trace::ScalarSite& site, trace::Formula formula) {
    sites_.push_back({site, std::move(formula)});
  }
  const std::vector<Number>& announced() const { return announced_; }
  /// Number `position` of those announced stands at `site`, or what `formula` makes of it.
  void take(std::size_t position, const trace::ScalarSite& site, trace::Formula formula);

  // For the session.
  const std::vector<trace::Leaf>& leaves() const { return leaves_; }
  const std::vector<Site>& sites() const { return sites_; }
  const std::vector<Condition>& conditions() const { return conditions_; }
  /// The places of the first lines, by leaf.
  const std::map<trace::Index, std::string>& held() const { return held_; }
  std::vector<Refusal> take_refusals() { return std::move(refusals_); }
  std::vector<trace::Effect> take_effects() { return std::move(effects_); }

 private:
  bool is_discarded_ = false;
  bool leaves_out_ = false;
  std::vector<trace::Leaf> leaves_;
  std::vector<Number> announced_;
  std::vector<Site> sites_;
  // since the newest announcement
  bool is_announcing_ = false;
  std::string function_;
  std::size_t first_site_ = 0;
  std::size_t ops_since_ = 0;
  bool does_more_ = false;                                         ///< than its op does
  std::vector<std::pair<std::size_t, std::string>> left_results_;  ///< in ascending order
  std::set<std::string> assigned_;
  std::vector<Condition> conditions_;
  std::map<trace::Index, std::string> held_;
  std::vector<trace::Index> reads_;
  /// Held weakly, so that no other memory gets the same address meanwhile.
  std::map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> made_, states_,
      kept_;
  std::set<trace::Index> internal_reads_;
  const std::vector<trace::Op>* ops_ = nullptr;  ///< of the recording, while it is under way
  std::map<Range, Look> looked_at_;
  std::vector<Refusal> refusals_;
  std::vector<trace::Effect> effects_;
  std::vector<ModuleCall> open_calls_;
  std::unordered_map<std::string, std::uint32_t> calls_of_;
  std::size_t calls_ = 0;
};

}  // namespace steptape::recorder
