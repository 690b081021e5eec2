#include "python/engine/step/followed_arguments.h"

#include <algorithm>
#include <string>
#include <utility>

#include "python/engine/followed.h"
#include "python/engine/moving.h"

namespace steptape::python {

void FollowedArguments::put(const Arguments& arguments, recorder::FrontendHints& hints,
                            std::size_t first_leaf) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  for (const auto& [leaf, holder, key] : arguments.numbers) {
    const py::object value = held_at(holder, key.ptr());
    if (numbers.contains(value.ptr())) {  // of a container that is given twice
      numbers.escape(value.ptr());
      continue;
    }
    if (!FollowedNumbers::can_follow_given(value.ptr())) continue;
    const std::string path = "inputs[" + std::to_string(first_leaf + leaf) + "]";
    py::object followed =
        numbers.follow(value.ptr(), trace::leaf(hints.leaf(trace::LeafKind::kArgument, path)));
    if (followed.is(value)) continue;
    put_at(holder, key.ptr(), followed.ptr());
    places_.push_back({first_leaf + leaf, borrowed(holder), key, std::move(followed)});
  }
}

bool FollowedArguments::has_others(const Arguments& now, std::size_t first_leaf) const {
  return std::ranges::any_of(now.numbers, [&](const Arguments::Number& number) {
    const py::object value = held_at(number.holder, number.key.ptr());
    bool is_known = false;
    for (const Place& place : places_) {
      if (place.leaf != first_leaf + number.leaf) continue;
      if (is_as_given(place, value)) return false;
      is_known = true;
    }
    return is_known;
  });
}

void FollowedArguments::take_back() {
  for (Place& place : places_) {
    if (!held_at(place.holder.ptr(), place.key.ptr()).is(place.followed)) continue;
    place.plain = FollowedNumbers::current().plain(place.followed.ptr());
    put_at(place.holder.ptr(), place.key.ptr(), place.plain.ptr());
  }
}

void FollowedArguments::put_again() {
  for (Place& place : places_) {
    if (place.plain) put_at(place.holder.ptr(), place.key.ptr(), place.followed.ptr());
  }
}

bool FollowedArguments::is_as_given(const Place& place, const py::object& now) {
  const FollowedNumbers& numbers = FollowedNumbers::current();
  PyObject* const given = place.followed.ptr();
  if (!now || now.is(place.followed)) return true;
  // of a container that is reached in another way, too, the number stands there itself
  if (numbers.has_escaped(given) && now.is(numbers.plain(given))) return true;
  const trace::Formula* formula = numbers.formula_of(now.ptr());
  return formula != nullptr && Py_TYPE(now.ptr()) == Py_TYPE(given) &&
         *formula == *numbers.formula_of(given);
}

}  // namespace steptape::python
