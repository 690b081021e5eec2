#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "python/engine/moving.h"
#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "python/engine/structure.h"
#include "python/engine/tracked.h"
#include "recorder/frontend_hints.h"
#include "steptape/pack.h"

namespace steptape::python {

/// What a call leaves behind in Python: its result, and what it assigned to places of the program's
/// or appended to lists. It is taken from a recorded call, into flat results that a plan computes,
/// and put again by each replay. Needs the GIL.
class Outcome {
 public:
  /// Adds what the call has returned, before anything else.
  void add_result(Roots& roots, PyObject* result, pack::Results& flat,
                  const Structure::OnNumber& on_number) {
    structure_.add(roots, {result, 1}, flat, on_number);
  }
  /// The same of a call that is compared with the plan of `tried`, and was given these containers.
  void add_tried_result(Roots& roots, const Outcome& tried, const std::vector<PyObject*>& given,
                        PyObject* result, pack::Results& flat) {
    structure_.ask_as(tried.structure_, given);
    add_result(roots, result, flat, [](std::size_t, PyObject*) {});
    structure_.settle([](PyObject*) { return true; });
    tried.flatten_assigned(flat);
  }
  /// The same of a call that is recorded: a function or a method in it can be made again where
  /// `tracked` knows it, and a container that the call was `given` is that again.
  void add_recorded_result(Tracked& tracked, const std::vector<PyObject*>& given, PyObject* result,
                           pack::Results& flat, const Structure::OnNumber& on_number);
  /// Adds what `tracked` says is to be assigned again, with its refusals where a replay could not.
  void add_assigned(Tracked& tracked, recorder::FrontendHints& hints, pack::Results& flat,
                    const Structure::OnNumber& on_number);
  /// What a call that is compared with the plan of this one has left in the same places.
  void flatten_assigned(pack::Results& flat) const;

  /// Says which inputs stand in places, from leaf `first_leaf` of the call on, and which results
  /// take theirs; and of which places it was seen that a call finds what the one before has left.
  /// `found`: what stood in the places that count as arguments as the call began.
  void note_places(MovingPlaces& moving, recorder::FrontendHints& hints,
                   const std::vector<py::object>& found, std::size_t first_leaf,
                   const std::vector<at::Tensor>& results);
  /// Remembers the tensors that a call leaves in places.
  void remember_left(MovingPlaces& moving, const std::vector<at::Tensor>& results) const;

  /// Assigns what a replay has computed, and gives what it returns.
  /// `given`: the containers that the call is given.
  py::object put(const pack::Results& results, std::span<PyObject* const> given) const;

 private:
  /// A place, as held_at has it: no key is a null one.
  struct Place {
    py::object owner, key;
  };
  /// A place that the step assigned to, whose value is the next part of the structure, or a list
  /// that as many of them were appended to.
  struct Assignment {
    Root owner, key, keys;
    /// The owner is an optimizer, and meant is its dict of this group: a state that is loaded puts
    /// others in their places.
    std::optional<Py_ssize_t> group = {};
    std::optional<std::size_t> appended = {};
    bool is_one = false;  ///< value, which takes the place of another
    /// Which of the places that count as arguments it is, and where its tensors are among the
    /// results.
    std::optional<std::size_t> given = {};
    std::vector<std::size_t> tensors = {};

    /// The very place, without an owner where it is gone.
    Place place() const;
  };
  static py::list held_in(const Place& place);
  Assignment& add_assignment(Tracked& tracked, const py::object& owner, const py::object& key,
                             const py::list& keys);
  /// Of places with objects that others stand for, those in which the step has put another itself.
  static void note_exchanged(MovingPlaces& moving, recorder::FrontendHints& hints);
  void find_given(const MovingPlaces& moving, const std::vector<Arguments>& left,
                  const std::vector<at::Tensor>& results);

  Structure structure_;  ///< the result, then what was assigned
  std::vector<Assignment> assignments_;
};

}  // namespace steptape::python
