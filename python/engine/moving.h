#pragma once

#include <string>
#include <utility>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/roots.h"

namespace steptape::python {

/// What a place of the program holds: a cell (no key), the entry of a dict, an item of a list, an
/// attribute of a class, or what a descriptor of C's gives of an object. Null when there is
/// nothing. Runs none of the user's code.
py::object held_at(PyObject* owner, PyObject* key);
/// Assigns to such a place. Throws what Python raises.
void put_at(PyObject* owner, PyObject* key, PyObject* value);

/// Whether it is an int or a float, and of no class made of these.
bool is_plain_number(PyObject* value);

/// Places of the program whose number was another one in two calls: a schedule, a counter, the
/// index of a loop. From then on the step follows it, as it does the numbers that steptape::host
/// declares, in place of holding for one value of it.
class MovingNumbers {
 public:
  struct Place {
    std::string name;  ///< no other has it
    Root owner, key;
  };

  explicit MovingNumbers(Roots& roots) : roots_(roots) {}

  /// A number in this place moves. False where nothing comes of it: it is known, or there are too
  /// many.
  bool note(const std::string& path, PyObject* owner, PyObject* key);
  bool contains(PyObject* owner, PyObject* key) const;
  const std::vector<Place>& places() const { return places_; }
  /// Gives each place a name that is none of `taken` either.
  void rename(const std::vector<std::string>& taken);
  /// Whether places came since this was asked last.
  bool take_news() { return std::exchange(has_news_, false); }

 private:
  static constexpr std::size_t kMost = 256;

  Roots& roots_;
  std::vector<Place> places_;
  bool has_news_ = false;
};

}  // namespace steptape::python
