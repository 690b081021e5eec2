#include "python/engine/step/outcome.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "python/engine/arguments.h"
#include "python/engine/followed.h"
#include "python/engine/optimizer_watch.h"
#include "steptape/error.h"

namespace steptape::python {
namespace {

/// The items of a list or deque from `first` on.
py::list items_from(const py::object& owner, std::size_t first) {
  const py::object all = list_of(owner.ptr());
  return py::reinterpret_steal<py::list>(
      PyList_GetSlice(all.ptr(), static_cast<Py_ssize_t>(first), PyList_GET_SIZE(all.ptr())));
}

/// What the numbers are called that a value is, or that stand in a tuple, last one first; none
/// where there are others in it, deeper down.
std::vector<std::string> names_of_numbers(const py::handle& value, const std::string& name) {
  const auto is_number = [](const py::handle& item) { return is_plain_number(item.ptr()); };
  if (is_number(value)) return {name};
  std::vector<std::string> names;
  if (!PyTuple_CheckExact(value.ptr())) return names;
  for (const py::handle& item : value) {
    if (!is_number(item)) return {};
    names.push_back(name + "[" + std::to_string(names.size()) + "]");
  }
  std::ranges::reverse(names);
  return names;
}

using NamedTensor = std::pair<std::string, at::Tensor>;

/// The tensors in a value, each by its name in the program.
std::vector<NamedTensor> tensors_in(const Arguments& arguments) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i + 1 < arguments.leaves.size(); ++i) {
    if (const auto* tensor = std::get_if<at::Tensor>(&arguments.leaves[i]))
      tensors.emplace_back(arguments.names[i], *tensor);
  }
  return tensors;
}

/// Whether it holds anything besides tensors.
bool has_others(const Arguments& arguments) {
  return !std::all_of(
      arguments.leaves.begin(), arguments.leaves.end() - 1,
      [](const pack::Leaf& each) { return std::holds_alternative<at::Tensor>(each); });
}

trace::Index index_in(const std::vector<at::Tensor>& results, const at::Tensor& tensor) {
  const auto found = std::ranges::find_if(
      results, [&tensor](const at::Tensor& each) { return each.is_same(tensor); });
  return found == results.end() ? trace::kNone : static_cast<trace::Index>(found - results.begin());
}

}  // namespace

Outcome::Place Outcome::Assignment::place() const {
  PyObject* groups = group ? groups_of(owner.get()) : nullptr;
  const bool is_there = groups != nullptr && *group < PyList_GET_SIZE(groups);
  PyObject* at = !group ? owner.get() : is_there ? PyList_GET_ITEM(groups, *group) : nullptr;
  if (at == nullptr) return {};
  Place place{borrowed(at), borrowed(key.get())};
  for (const py::handle& next : py::reinterpret_borrow<py::list>(keys.get())) {
    place.owner = held_at(place.owner.ptr(), place.key.ptr());
    if (!place.owner) return {};
    place.key = borrowed(next.ptr());
  }
  return place;
}

/// What stands in a place now: one value, or none.
py::list Outcome::held_in(const Place& place) {
  py::list values;
  if (!place.owner) return values;
  if (const py::object value = held_at(place.owner.ptr(), place.key.ptr())) values.append(value);
  return values;
}

void Outcome::add_recorded_result(Tracked& tracked, const std::vector<PyObject*>& given,
                                  PyObject* result, pack::Results& flat,
                                  const Structure::OnNumber& on_number) {
  structure_.ask_where_given(given);
  structure_.ask_which_keys_are_given(
      [&tracked](PyObject* key) { return tracked.is_given_key(key); });
  structure_.ask_whether_known([&tracked](PyObject* object) {
    return tracked.has_met(object) ||
           (is_part_of_model(object) && tracked.tracked().contains(object));
  });
  add_result(tracked.roots(), result, flat, on_number);
}

Outcome::Assignment& Outcome::add_assignment(Tracked& tracked, const py::object& owner,
                                             const py::object& key, const py::list& keys) {
  Roots& roots = tracked.roots();
  const auto group = tracked.group_of(owner.ptr());
  Assignment& made = assignments_.emplace_back(
      Assignment{Root::guarding(roots, group ? group->first : owner.ptr()),
                 key.is_none() ? Root() : Root(roots, key.ptr()), Root(roots, keys.ptr())});
  if (group) made.group = group->second;
  return made;
}

void Outcome::add_assigned(Tracked& tracked, recorder::FrontendHints& hints, pack::Results& flat,
                           const Structure::OnNumber& on_number) {
  struct Made {
    std::string path, words, place, change;
    std::size_t end;  ///< after the parts of its values
    bool decides;
  };
  std::vector<Made> all;
  for (const py::handle& item : tracked.assignments()) {
    const auto [path, owner, key, keys, kept, place, change, before_number] =
        py::cast<std::tuple<std::string, py::object, py::object, py::list, py::object, std::string,
                            std::string, int>>(item);
    const auto before = static_cast<Before>(before_number);
    Assignment& made = add_assignment(tracked, owner, key, keys);
    const py::list values =
        kept.is_none() ? held_in(made.place()) : items_from(owner, py::cast<std::size_t>(kept));
    if (!kept.is_none()) made.appended = values.size();
    hints.leave_results(flat.tensors.size(), path);
    made.is_one = kept.is_none() && keys.empty();
    std::string becomes;
    if (made.is_one) {
      PyObject* at = key.is_none() ? nullptr : key.ptr();
      becomes = hints.is_assigned(path) ? path : tracked.moving_places().name_of(owner.ptr(), at);
    }
    std::vector<std::string> parts =
        becomes.empty() ? std::vector<std::string>() : names_of_numbers(values[0], becomes);
    const auto on_value = [&](std::size_t position, PyObject* number) {
      on_number(position, number);
      if (parts.empty()) {
        // a player does not carry it on: it holds while what it reads there is what it leaves
        if (before == Before::kSame) FollowedNumbers::current().hold(number);
        return;
      }
      hints.said.becoming.emplace_back(position, parts.back());
      parts.pop_back();
    };
    std::string words = kept.is_none() ? "" : "appended:";
    // players know of no objects: which one it is may decide what the next call does
    const bool is_argument = made.is_one && tracked.moving_places().find_given(
                                                owner.ptr(), key.is_none() ? nullptr : key.ptr());
    bool decides = before == Before::kOther;
    for (const py::handle& value : values) {
      // by the place and by `values`
      structure_.add(tracked.roots(), {value.ptr(), 2, true}, flat, on_value);
      words += (words.empty() ? "" : " ") + structure_.text(structure_.size() - 1);
      decides |= is_argument && structure_.leaves_found(structure_.size() - 1);
    }
    all.push_back({path, words, place, change, structure_.size(), decides});
  }
  structure_.settle([&tracked](PyObject* object) { return tracked.holds(object); });
  if (structure_.keeps_objects()) tracked.hold_containers();
  if (!structure_.opaque(0).empty()) {
    hints.refuse(RefusalCode::kHostEffect,
                 "the step returns a " + structure_.opaque(0) + ", which a replay could not make");
  }
  if (structure_.has_subclass(0)) {
    hints.refuse(RefusalCode::kTensorKind, "a result is of a subclass of torch.Tensor");
  }
  hints.add_effect({"results", structure_.text(0), "", false});
  std::size_t k = 1;
  for (const Made& made : all) {
    for (; k < made.end; ++k) {
      if (structure_.opaque(k).empty() && !structure_.has_subclass(k)) continue;
      hints.refuse(RefusalCode::kHostEffect, "host state `" + made.path + "` went " + made.change,
                   made.place);
    }
    hints.add_effect({made.path, made.words, made.place, made.decides});
  }
}

void Outcome::flatten_assigned(pack::Results& flat) const {
  std::size_t k = 1;
  for (const Assignment& assignment : assignments_) {
    const Place place = assignment.place();
    const std::size_t count = assignment.appended.value_or(1);
    const std::size_t size =
        assignment.appended ? static_cast<std::size_t>(size_of(place.owner.ptr())) : 0;
    const py::list values = assignment.appended
                                ? items_from(place.owner, size - std::min(count, size))
                                : held_in(place);
    for (std::size_t i = 0; i < count; ++i) {
      structure_.flatten(k++, i < values.size() ? values[i].ptr() : nullptr, flat);
    }
  }
}

void Outcome::find_given(const MovingPlaces& moving, const std::vector<Arguments>& left,
                         const std::vector<at::Tensor>& results) {
  for (Assignment& made : assignments_) {
    const Place at = made.is_one ? made.place() : Place();
    if (at.owner) made.given = moving.find_given(at.owner.ptr(), at.key.ptr());
    if (!made.given) continue;
    for (const auto& [name, tensor] : tensors_in(left[*made.given])) {
      const trace::Index result = index_in(results, tensor);
      if (result != trace::kNone) made.tensors.push_back(result);
    }
  }
}

void Outcome::note_places(MovingPlaces& moving, recorder::FrontendHints& hints,
                          const std::vector<py::object>& all_found, std::size_t first_leaf,
                          const std::vector<at::Tensor>& results) {
  std::vector<Arguments> all_left;
  for (const py::object& held : moving.left())
    all_left.push_back(flatten(held, moving.given_at(all_left.size()).name));
  find_given(moving, all_left, results);
  std::size_t leaf = first_leaf;
  for (std::size_t i = 0; i < all_found.size(); ++i) {
    MovingPlaces::Place& place = moving.given_at(i);
    const Arguments found = flatten(all_found[i], place.name);
    const Arguments& left = all_left[i];
    std::vector<NamedTensor> tensors = tensors_in(left);
    bool are_results = true;  // those that it leaves
    for (std::size_t own = 0; own + 1 < found.leaves.size(); ++own, ++leaf) {
      const auto* tensor = std::get_if<at::Tensor>(&found.leaves[own]);
      if (tensor == nullptr) continue;
      trace::HeldInput input{.path = found.names[own],
                             .input = static_cast<trace::Index>(leaf),
                             .is_carried = true,
                             .place = static_cast<trace::Index>(i)};
      const auto now = std::ranges::find(tensors, input.path, &NamedTensor::first);
      input.is_dropped = now == tensors.end();
      if (!input.is_dropped) {
        if (!now->second.is_same(*tensor)) {
          input.result = index_in(results, now->second);
          are_results = are_results && input.result != trace::kNone;
        }
        tensors.erase(now);
      }
      hints.said.places.push_back(std::move(input));
    }
    for (const auto& [name, tensor] : tensors) {
      const trace::Index result = index_in(results, tensor);
      are_results = are_results && result != trace::kNone;
      if (result != trace::kNone)
        hints.said.places.push_back({.path = name,
                                     .result = result,
                                     .is_carried = true,
                                     .place = static_cast<trace::Index>(i)});
    }
    // players hold no numbers of such places: who sets them does not matter
    const bool holds_others = has_others(found) || has_others(left);
    place.is_left = place.is_left || holds_others;
    const bool is_carried = are_results && !holds_others && !place.item;
    hints.said.held_places.push_back(
        {place.name, found.structure(), left.structure(),
         is_carried ? trace::HeldPlace::Rule::kCarried : trace::HeldPlace::Rule::kLost});
  }
  note_exchanged(moving, hints);
}

void Outcome::note_exchanged(MovingPlaces& moving, recorder::FrontendHints& hints) {
  for (MovingPlaces::Place& place : moving.places()) {
    if (!place.is_object()) continue;
    const bool is_same = moving.holds_its_object(place);
    place.is_left = place.is_left || !is_same;
    hints.said.held_places.push_back(
        {place.name, "an object", is_same ? "an object" : "another",
         is_same ? trace::HeldPlace::Rule::kGiven
                 : trace::HeldPlace::Rule::kLost});  // players know of no objects
  }
}

void Outcome::remember_left(MovingPlaces& moving, const std::vector<at::Tensor>& results) const {
  for (const Assignment& made : assignments_) {
    if (!made.given) continue;
    std::vector<MovingPlaces::WeakTensor>& left = moving.given_at(*made.given).left;
    left.clear();
    for (const std::size_t k : made.tensors) left.emplace_back(results[k].getIntrusivePtr());
  }
}

py::object Outcome::put(const pack::Results& results, std::span<PyObject* const> given) const {
  std::vector<py::object> built = structure_.build(results, given);
  auto next = built.begin() + 1;
  for (const Assignment& assignment : assignments_) {
    const Place place = assignment.place();
    if (!place.owner) throw Error(ErrorCode::kInternal, "a place that the step assigns to is gone");
    if (!assignment.appended) {
      PyObject* const value = (next++)->ptr();
      const bool is_of_class = PyType_Check(place.owner.ptr()) && !is_member(place.key.ptr());
      is_of_class ? put_in_class(as_type(place.owner.ptr()), place.key.ptr(), value)
                  : put_at(place.owner.ptr(), place.key.ptr(), value);
      continue;
    }
    for (std::size_t i = 0; i < *assignment.appended; ++i)
      append_to(place.owner.ptr(), (next++)->ptr());
  }
  return built.front();
}

}  // namespace steptape::python
