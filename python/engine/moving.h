#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "steptape/pack.h"
#include "trace/formula.h"

namespace steptape::python {

/// What a place of the program holds: a cell (no key), the entry of a dict, an item of a list or
/// deque, which may be a tuple's, an attribute of a class, or what a descriptor of C's, the key,
/// gives of an object; an array of NumPy without a key is its own. Null when there is nothing. Runs
/// none of the user's code.
py::object held_at(PyObject* owner, PyObject* key);
/// The class that holds what instances of `type` find under `key`; null for none.
PyObject* holder_of(PyObject* type, PyObject* key);
/// As PyDict_SetItem, of an OrderedDict too.
int set_entry(PyObject* dict, PyObject* key, PyObject* value);
/// Sets an attribute of a class, whichever of its bases holds one of that name. Throws what Python
/// raises.
void put_in_class(PyTypeObject* type, PyObject* key, PyObject* value);
/// Assigns to such a place, of a class in the one that holds it now; into a tuple a number for an
/// equal one. Throws what Python raises.
void put_at(PyObject* owner, PyObject* key, PyObject* value);
/// Adds an item at the end of a list or deque, whatever `append` its class has: what that does
/// besides was seen as it ran, and is done again by itself.
void append_to(PyObject* owner, PyObject* item);

/// Whether a key is a descriptor of C's, which names a member of its object whatever that is: a
/// slot of a dict, too.
bool is_member(PyObject* key);
/// Whether it is one that nothing can be assigned to.
bool is_read_only(PyObject* key);
/// Whether a key of a list or deque counts from its end.
bool is_from_the_end(PyObject* key);
/// Whether functions of NumPy's can be called for numbers so that they throw where they would warn.
bool can_call_numpy();
/// Whether it is a function in C of Python's `math`.
bool is_of_math(PyObject* function);
/// Whether two keys, or nulls, are of one place; other keys than texts and ints by their identity.
bool is_same_key(PyObject* a, PyObject* b);

/// The path, with a number after it where it is one of `taken`.
std::string free_name(const std::string& path, const std::vector<std::string>& taken);

/// Whether it is an int or a float, of NumPy's or not, and of no other class made of these.
bool is_plain_number(PyObject* value);
/// Whether one object of the program's may stand for another: of one class, and a list, dict, set,
/// deque or a plain object.
bool may_stand_for(PyObject* one, PyObject* other);
/// A float of this class.
py::object float_of_class(PyTypeObject* type, double value);

/// Places of the program that held something else in two calls. A number (a schedule, a counter,
/// the index of a loop) is followed from then on, as are those that steptape::host declares;
/// tensors (a hidden state, a batch, a mask), containers of them, and arrays that were written to
/// count as arguments of the step. An object of another kind, or a container that the step changes,
/// stands for the one that it took the place of (`exchange`).
class MovingPlaces {
 public:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Place {
    std::string name;  ///< no other has it
    Root owner, key;
    bool is_argument;
    PyTypeObject* float_type;  ///< the class of a float that is expected there
    bool is_left = false;      ///< an argument: a call has found what one before it had left
    /// What plans take for what stands there, where another one takes its place: then the place is
    /// no argument.
    Root object = {};
    Root was = {};  ///< of an argument: the object that stood there before it was one
    /// Of an argument that stands in a container under a followed number: which item says where.
    /// Such a place has no owner.
    std::optional<std::size_t> item = {};
    bool is_object() const { return !object.is_empty(); }
    /// Whether a number that stands there is followed.
    bool is_followed() const { return !is_argument && !is_object(); }
    /// The tensors that the newest call which assigned it has left there, weakly, so that no other
    /// gets the address of one.
    std::vector<WeakTensor> left = {};
  };

  /// `is_of_optimizer` says of a dict that a number which stands there under a text is followed,
  /// `is_optimizers_own` that an optimizer is guarded with it: no object in it stands for another.
  MovingPlaces(Roots& roots, std::function<bool(PyObject*)> is_of_optimizer,
               std::function<bool(PyObject*)> is_optimizers_own)
      : roots_(roots),
        is_of_optimizer_(std::move(is_of_optimizer)),
        is_optimizers_own_(std::move(is_optimizers_own)) {}

  /// What this place holds moves. False where nothing comes of it: it is known, or a number of an
  /// optimizer's, or there are too many, or they are closed.
  /// `was`: the object that stood there, or null.
  bool note(const std::string& path, PyObject* owner, PyObject* key, PyObject* was = nullptr);
  bool is_of_optimizer(PyObject* owner) const {
    return owner != nullptr && is_of_optimizer_(owner);
  }
  /// The same of a place in which an object, list, dict, set or deque took the place of another one
  /// of its class.
  bool note_object(const std::string& path, PyObject* owner, PyObject* key, PyObject* was);
  /// The step changes `held`, which it has found in this place, as an argument. False where no
  /// other one can stand for that.
  bool make_object(std::size_t given, PyObject* held);
  /// A call begins: in all that plans know, what stands in such places now takes the place of what
  /// stood there, with its attributes. Where plans know it already, as it stands elsewhere too, it
  /// is another one to them.
  void exchange();
  /// Whether what stands in such a place is what plans know.
  bool holds_its_object(const Place& place) const;
  /// What a step does depends on the address of an object: no other one stands for it.
  void keep_objects() { keeps_objects_ = true; }
  /// Whether what stands there moves in another way than by taking the place of another.
  bool contains(PyObject* owner, PyObject* key) const {
    const Place* place = find(owner, key);
    return place != nullptr && !place->is_object();
  }
  bool is_argument(PyObject* owner, PyObject* key) const {
    const Place* place = find(owner, key);
    return place != nullptr && place->is_argument;
  }
  /// The name of a place whose number is followed, or "".
  std::string name_of(PyObject* owner, PyObject* key) const {
    const Place* place = find(owner, key);
    return place != nullptr && place->is_followed() ? place->name : "";
  }
  bool is_empty() const { return places_.empty(); }
  Roots& roots() const { return roots_; }
  /// A call begins, and `held` stands in a place: the class of float that was expected there. One
  /// of another class is expected from then on, which counts as a place that came.
  PyTypeObject* expect_float(std::size_t place, PyObject* held);
  /// A call begins: what the places that count as arguments hold now, null where there is nothing.
  std::vector<py::object> given();
  /// What they hold as it ends, or still hold of the call before.
  std::vector<py::object> left() const;
  /// Whether one that is looked up is found by a number in another of these places. Numbers among
  /// the call's own arguments are in its first `own` leaves.
  bool looks_up_by_places(std::size_t own) const;
  /// None of those that are looked up was found.
  void lose_items();
  std::vector<std::string> names_of_given() const;
  Place& given_at(std::size_t position) { return places_[given_[position]]; }
  /// A call begins that finds these in the places that count as arguments: whether one before has
  /// left them there.
  void note_left(std::span<const py::object> given);
  /// It is not known what calls have left in them.
  void forget_left() {
    for (Place& place : places_) place.left.clear();
  }
  /// Which of these it is; none for another place.
  std::optional<std::size_t> find_given(PyObject* owner, PyObject* key) const;

  /// What is looked up as each call begins: a number or tensors that stand in a list, tuple or dict
  /// under followed ones, such as the rate of this step in a table or its batch, the number that a
  /// function which depends on nothing else gives for them, the size of a container, or a number
  /// counted from the end of a list, to which the step may append. It moves once what leads to it
  /// was another one, and is followed, or counts as an argument, then.
  struct Item {
    struct Number {
      trace::Formula formula;  ///< over `leaves`
      PyTypeObject* type;      ///< of int, float or bool
      friend bool operator==(const Number&, const Number&) = default;
    };
    struct Argument {
      std::vector<Number> numbers;
      PyTypeObject* sequence = nullptr;  ///< list or tuple, of these; null: the one, or None
      std::string keyword = {};
      friend bool operator==(const Argument&, const Argument&) = default;
    };
    std::string name;
    Root owner;  ///< the container, or the function
    /// Of the function, those by position first; of a container the one int, or none: its size.
    std::vector<Argument> arguments;
    std::vector<trace::Leaf> leaves;  ///< arguments and host values
    std::vector<double> newest;       ///< what leads to it: these numbers, or else what it was
    bool moves = false;
    bool is_argument = false;
    PyTypeObject* float_type = &PyFloat_Type;
    py::object found = {};  ///< as the newest call began; null for nothing
  };
  /// The number, or tensors, `now` that `owner`, which is called `path`, holds or gives for
  /// `arguments`, whose formulas are over `leaves`; `newest` is what leads to it now. Null where it
  /// is not followed, or was another one when the call began.
  const Item* find_item(const std::string& path, PyObject* owner,
                        std::vector<Item::Argument> arguments, std::vector<double> newest,
                        std::span<const trace::Leaf> leaves, PyObject* now);
  const std::vector<Item>& items() const { return items_; }
  /// The deques with a limit of whose items, counted from the end, some move, by their paths.
  std::map<PyObject*, std::string> windows() const;
  /// Whether a number is followed that changes as items are added at the end of `owner`.
  bool is_seen_growing(PyObject* owner) const;
  /// What it is as a call begins.
  py::object look_up(std::size_t item);
  /// The same, where those that lead to it have not been looked up yet.
  py::object look_up_all(std::size_t item);
  /// What the call that begins is given.
  void set_arguments(const std::vector<pack::Leaf>& leaves);
  const std::vector<Place>& places() const { return places_; }
  std::vector<Place>& places() { return places_; }
  /// The lists, dicts and objects among the arguments of the call that is under way.
  void set_containers(std::vector<PyObject*> containers) { containers_ = std::move(containers); }
  const std::vector<PyObject*>& containers() const { return containers_; }
  /// Gives each place a name that is none of `taken` either.
  void rename(const std::vector<std::string>& taken);
  /// The places that came since this was asked last, in words.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }
  /// Places of this object are let go of, and are none any more once the step begins anew.
  void forget(PyObject* owner);
  void drop_forgotten();
  /// From here on none are noted: what is found is in another place in each call.
  void close() { is_closed_ = true; }
  /// The step asks where in its memory an argument lies: from here on that is part of what it is
  /// called with.
  void compare_offsets() {
    if (!std::exchange(compares_offsets_, true)) news_.emplace_back("where an argument lies");
  }
  bool compares_offsets() const { return compares_offsets_; }

 private:
  static constexpr std::size_t kMost = 256;
  const Place* find(PyObject* owner, PyObject* key) const;
  std::vector<std::string> names() const;
  void find_given_places();
  /// What is in `was` and moves is in `now`, which took its place.
  void move_places(PyObject* was, PyObject* now);
  /// The place that a note is about, which runs none of the user's code; null for none.
  Place* add(const std::string& path, PyObject* owner, PyObject* key);
  /// None where it is not known when a call begins, or not a number.
  std::optional<double> number_of(const trace::Leaf& leaf) const;

  Roots& roots_;
  std::function<bool(PyObject*)> is_of_optimizer_, is_optimizers_own_;
  std::vector<Place> places_;
  std::vector<std::size_t> given_;  ///< which of these count as arguments
  std::vector<Item> items_;
  std::vector<std::optional<double>> arguments_;  ///< the numbers among them
  std::vector<PyObject*> containers_;
  std::vector<std::string> news_;
  bool is_closed_ = false;
  bool compares_offsets_ = false;
  bool keeps_objects_ = false;
};

}  // namespace steptape::python
