#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/engine/arguments.h"
#include "python/engine/foreign.h"
#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "python/engine/watch/watcher.h"
#include "session/session_state.h"

namespace steptape::python {

/// What a step of Python reaches, tracked by a session of its own, and what changes in it while a
/// step is recorded. Which objects these are the package decides. Needs the GIL throughout.
class Tracked {
 public:
  Tracked() = default;
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;

  void track_model(const std::string& name, const py::object& module);
  void track_optimizer(const std::string& name, const py::object& optimizer);
  void track_generator(const std::string& name, const py::object& generator);
  /// What the step reads and writes besides. `places` hold tensors, each as (path, dict, key); more
  /// are found by probes.
  void track_host(const std::string& name, const py::list& places);

  /// Forgets all that is tracked, to track anew. Only between two calls of a step without plans.
  void untrack();
  /// Drops those of `met`, each under a key as (path, object), which nobody holds but this and the
  /// dict.
  void drop_released(const py::dict& met) const;

  /// For probes: what the tracked objects hold now, and places of torch's that every step depends
  /// on, each as (path, dict, key); and what has changed since, each as (path, after, owner, key,
  /// text before, text after, keys that lead further in, whether `after` stands there now and is
  /// the whole difference, line or "").
  void capture(const py::list& guarded);
  py::list changes() const;
  /// Lets go of what was captured, of which the tracked objects then show nothing.
  void forget();
  /// Numbers in the state of tracked optimizers, each as (dict, key, path).
  py::list state_numbers() const;
  /// What replays are to assign again, each: (path, owner of the place, key or None, keys that lead
  /// further in, None or how many items were there before those that were appended, line,
  /// "before → after").
  void assign_again(const py::list& assignments) { assignments_ = assignments; }
  py::list assignments() const { return assignments_.value_or(py::list()); }
  /// What the newest probe has found in the places that are guarded.
  std::map<std::string, std::string> guarded() const;

  /// From here on what this thread executes is watched; `roots` are the step's function and what it
  /// is called with that is the program's own, each as (path, object); `given` is all of that.
  /// Throws FailedPrecondition where that cannot be.
  void begin_watch(const py::list& roots, const py::tuple& given);
  /// For steps that are not a function: from here on the numbers that go into ops are seen, and
  /// which module runs, in all code that begins to run. False inside another step; throws
  /// FailedPrecondition as `begin_watch` does.
  bool begin_numbers();
  /// Ends that, and refuses what no plan can do. Gives a dict: `objects`, modules, optimizers,
  /// generators and host values that were met and are not tracked, as (path, object); and
  /// `is_known`, whether the tensors that were met are tracked.
  py::dict end_watch();
  /// Refuses what no guard can look at: a scripted module keeps its flags and attributes in C++,
  /// and what the code of a tensor subclass does shows in no op.
  void refuse_hidden() const;
  /// Places that a plan of the probe that has ended depends on, each as (path, owner, key or None).
  py::list reads() const;
  /// Where the probe that has ended wrote an attribute or item of this name, or "".
  std::string place_of_write(const std::string& name) const;

  Roots& roots() { return roots_; }
  const MovingPlaces& moving_places() const { return moving_; }
  /// Modules and optimizers.
  std::unordered_set<PyObject*> tracked() const;
  /// Of the dict of a group: the optimizer, borrowed, and which of its groups. Nothing for another.
  std::optional<std::pair<PyObject*, Py_ssize_t>> group_of(PyObject* dict) const;
  /// Of the newest probe: a container may not take the place of an equal one.
  void hold_containers() const {
    if (host_ != nullptr && host_->seen() != nullptr) host_->seen()->hold_containers();
  }
  /// A plan of the newest probe depends on what stands in a dict under `key`.
  void guard(const std::string& path, PyObject* dict, PyObject* key) const {
    if (host_ != nullptr) host_->guard(path, dict, key);
  }
  /// Watcher::has_met of the newest probe.
  bool has_met(PyObject* object) const { return watcher_ != nullptr && watcher_->has_met(object); }
  /// Watcher::is_given_key of the newest probe.
  bool is_given_key(PyObject* key) const {
    return watcher_ != nullptr && watcher_->is_given_key(key);
  }
  /// Whether a reference to the object is kept from one probe to the next.
  bool holds(PyObject* object) const { return handed_.holds(object); }

  /// What is in this place moves; see MovingPlaces.
  bool note_moving(const std::string& path, const py::object& owner, const py::object& key) {
    return moving_.note(path, owner.ptr(), key.is_none() ? nullptr : key.ptr());
  }
  /// Places that began to move, and optimizers to be idle, since this was asked last, in words.
  std::vector<std::string> take_news();
  /// No place counts as one that moves that is not known to.
  void close_moving() { moving_.close(); }
  /// Declares each number that moves as a host value of the session's.
  void declare_moving();
  /// The numbers that move, each as (name, owner, key or None).
  py::list moving() const;

 protected:
  /// Of the newest probe, once that has begun.
  const watch::Watcher& watcher() const { return *watcher_; }
  /// Containers that watched code has changed, which the host state reports by itself.
  std::unordered_set<PyObject*> changed_containers() const;
  static bool is_in(const HostChange& change, const std::unordered_set<PyObject*>& changed);
  /// Calls `visit(path, module)` for each module of those that are tracked, and of the modules in
  /// them, in order.
  template <typename Visit>
  void for_each_module(Visit&& visit) const;
  /// Whether it is the dict of a group, or of the state of a parameter.
  bool is_of_optimizer(PyObject* dict) const;
  /// The same, or its attributes, or what its state is kept in.
  bool is_optimizers_own(PyObject* dict) const;

  Roots roots_;
  MovingPlaces moving_{roots_, [this](PyObject* dict) { return is_of_optimizer(dict); },
                       [this](PyObject* dict) { return is_optimizers_own(dict); }};
  ChangedArguments changed_;
  session::SessionState session_;
  std::optional<py::list> assignments_;   ///< of the probe that is under way
  std::vector<Arguments::Array> arrays_;  ///< that the call which is under way is given
  /// Called as the watch of a probe ends, to note what else the probe depends on.
  std::function<void(watch::Watcher&)> at_end_of_watch_;

 private:
  template <typename Kind>
  using ByName = std::vector<std::pair<std::string, std::shared_ptr<Kind>>>;
  ByName<Watched> watched_;  ///< these two kinds, and the host
  ByName<Modules> modules_;
  ByName<Optimizer> optimizers_;
  std::shared_ptr<HostState> host_;
  std::map<PyObject*, OptimizerUse> uses_;  ///< by optimizer, those that are tracked
  watch::HandedObjects handed_{roots_};
  std::unique_ptr<watch::Watcher> watcher_;  ///< of the newest probe
};

}  // namespace steptape::python
