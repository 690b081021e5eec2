#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "python/engine/tracked.h"
#include "python/engine/words.h"
#include "recorder/frontend_hints.h"
#include "session/step_life.h"

namespace steptape::python {

/// A wrapped step: a session of its own with one step in it. What Python's side decides (which
/// objects to track, what a probe looks at) is in the package; this runs the call. Needs the GIL
/// throughout.
class Step : public Tracked {
 public:
  explicit Step(const py::dict& options);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// A function that gives a bool, int or float, called once a call.
  void add_host_value(const std::string& name, const py::function& function);
  py::object host_value(const std::string& name);

  /// `function` is what an eager call runs. `probe(function, args, kwargs)` runs it
  /// while it is recorded, and returns the result.
  /// `parameters`: the names of those that it takes by position.
  void bind(const std::string& name, const std::string& place, const py::object& function,
            const py::object& probe, bool takes_keywords, std::vector<std::string> parameters);
  py::object call(const py::args& args, const py::kwargs& kwargs);

  /// After the first call.
  std::string explain() const;
  py::dict stats() const;
  void invalidate(const std::string& why);
  /// Whether a call is under way.
  bool is_inside() const { return session_.declarations.now().has_value(); }
  /// The step is never recorded: every call runs eagerly.
  void refuse_always(const std::string& code, const std::string& message, const std::string& place);
  void save(const std::string& path, bool with_state);

 private:
  struct Given;
  /// Finds what stands in the places that count as arguments, and what numbers among it lead to.
  void look_at_places(Given& given, const Flatten& how);
  /// Refuses what no guard could hold an argument to; `opaque_name` is what the program calls it,
  /// or "".
  void check_arguments(const Arguments& arguments, const std::string& opaque_name,
                       recorder::FrontendHints& hints);
  /// The same of all that a recorded call is given, and what the program calls it: `before` are its
  /// arguments and `held` what stands in places, with names.
  void check_given(const Given& given, const Arguments& before, const Arguments& held,
                   recorder::FrontendHints& hints);
  /// The step has changed lists, dicts or objects among its arguments: from here on they count as
  /// the program's. False where they cannot, or are others in each call.
  bool take_changed(const Arguments& before);
  void take_or_refuse_changed(const Arguments& before, recorder::FrontendHints& hints);
  /// Whether these arguments count as objects of the program's from the next call on.
  bool take_as_programs(const std::vector<std::pair<PyObject*, std::string>>& objects);
  /// The step has changed what it found in the `changed` of the places that count as arguments, the
  /// last one first: from here on objects that others stand for are there, or it is refused.
  void take_or_refuse_changed_places(const Given& given, const std::vector<std::size_t>& changed,
                                     recorder::FrontendHints& hints);
  /// Runs the function, in a call that is recorded or not; `result` is what it returns.
  pack::Results run(const Given& given, py::object& result);
  pack::Results run_recorded(recorder::FrontendHints& hints, const Given& given,
                             py::object& result);
  /// What a recorded call leaves; what stood in places was given from leaf `first_place` on.
  pack::Results outcome_of(recorder::FrontendHints& hints, const Given& given,
                           std::size_t first_place, const py::object& result);
  py::object replayed(const pack::Results& results);

  std::shared_ptr<session::StepLife> life_;
  Root function_, probe_;
  bool takes_keywords_ = false;  ///< as a dict
  std::size_t calls_under_way_ = 0;
  bool must_forget_ = false;  ///< when they are over
  std::vector<std::string> parameters_;
  Words words_;
  UnreadArguments unread_;
  /// Those among the arguments of recorded calls that are known by their identity, so that no other
  /// gets the address of one while plans are compared with it.
  std::unordered_map<PyObject*, Root> given_objects_;
  /// Since the last replay, calls for which objects that they had been given were taken.
  std::size_t changed_in_turn_ = 0;
  static constexpr std::size_t kMostChangedInTurn = 3;
};

}  // namespace steptape::python
