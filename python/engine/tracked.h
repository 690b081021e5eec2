#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/engine/foreign.h"
#include "python/engine/python.h"
#include "python/engine/roots.h"
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
  /// Each slot: (path, owner, key or None, whether a plan depends on it, whether the key is of the
  /// owner itself); see Slot.
  void track_host(const std::string& name, const py::list& slots);

  /// Forgets all that is tracked, to track anew. Only between two calls of a step without plans.
  void untrack();

  /// For probes: what the tracked objects hold now; and what has changed since, each as (path,
  /// after, owner, key, text before, text after, keys that lead further in, whether `after`
  /// stands there now and is the whole difference).
  void capture();
  py::list changes() const;
  /// Lets go of what was captured, of which the tracked objects then show nothing.
  void forget();
  /// Integers in the state of tracked optimizers, each as (dict, key, path).
  py::list counters() const;
  /// What replays are to assign again, each: (cell or dict, key or None, keys that lead further in,
  /// value).
  void assign_again(const py::list& assignments) { assignments_ = assignments; }
  /// From now on a plan depends on these host slots alone: one flag for each.
  void guard_slots(const py::list& flags);

  Roots& roots() { return roots_; }

 protected:
  bool is_tracked(PyObject* object) const;

  Roots roots_;
  session::SessionState session_;
  std::optional<py::list> assignments_;  ///< of the probe that is under way

 private:
  std::vector<std::pair<std::string, std::shared_ptr<Watched>>> watched_;
  std::shared_ptr<HostState> host_;
};

}  // namespace steptape::python
