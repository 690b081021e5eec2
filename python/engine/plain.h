#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "python/engine/dict_memo.h"
#include "python/engine/python.h"
#include "python/engine/roots.h"

namespace steptape::python {

/// What a plan has to do with what stood at a place before the step wrote to it.
enum class Before : std::uint8_t {
  kUnread,  ///< nothing
  kSame,    ///< depends on it, and the step has left the same value
  kOther,   ///< depends on it, and the step has left another one
};

inline Before before_of(bool is_read, bool is_same) {
  return !is_read ? Before::kUnread : is_same ? Before::kSame : Before::kOther;
}

class MovingPlaces;
bool may_stand_for(PyObject* one, PyObject* other);

/// Where a value differs from what it was, and how.
struct Change {
  std::string path;      ///< below the value: "", "[0]", "['lr']"
  std::string was;       ///< in words; "nothing": there was none
  py::object after;      ///< null: there is none
  py::list keys;         ///< that lead to it: of dicts, and positions in lists
  bool is_whole = true;  ///< nothing else differs: assigning `after` makes the value what it is
};

/// What a Python value was, to be compared with what it is now, running none of the user's code:
/// numbers, strings and bytes by value, tuples, lists and dicts of them by content up to a depth,
/// and everything else by identity.
class Plain {
 public:
  static constexpr int kDepth = 6;
  /// Longer containers are compared by identity and length.
  static constexpr Py_ssize_t kMostItems = 1000;
  /// A tuple in so many others is known by its identity.
  static constexpr int kDeepestTuple = 100;

  Plain(Roots& roots, PyObject* value, int depth = kDepth);
  /// A dict of hooks: how many there are and which, whatever their keys.
  static Plain hooks(Roots& roots, PyObject* dict);
  /// A value that is compared by identity, whatever it is.
  static Plain identity(Roots& roots, PyObject* value);
  /// A value that stands in a place: numbers and texts by value, tuples of them and methods of
  /// objects too, all else by identity, whatever may become of its content.
  static Plain reference(Roots& roots, PyObject* value, int depth = kDeepestTuple);
  /// A container with its items, each by `reference`.
  static Plain content(Roots& roots, PyObject* container);
  /// A value with all that is in it, up to a depth; of an object its attributes.
  static Plain whole(Roots& roots, PyObject* value, int depth = kDepth);

  bool same(PyObject* now) const;
  /// From here on anything may stand in those places of `value`, which this was made of, that are
  /// in `moving` or hold a number that is followed now: who takes it takes that very object. A
  /// container with such a place is held to its identity, since they are places of that one.
  void let_move(PyObject* value, const MovingPlaces& moving);
  /// Where items begin in `now`, a list or deque, after `count` were added at the end of those that
  /// it held; none where that is not all that has happened. Of a list the count need not be right.
  std::optional<Py_ssize_t> appended(PyObject* now, Py_ssize_t count) const;
  /// The one value that it holds a place to, as a word; "" for containers.
  std::string token() const;
  /// Whether its content may change while the object stays the same one.
  bool is_mutable() const;
  /// Whether it is compared with an object for which another one may come to stand.
  bool may_be_exchanged() const;
  /// False where it is held to another object.
  bool admits(PyObject* object) const { return only_.is_empty() || only_.get() == object; }
  /// Whether something in it is not compared, as there is too much of it or it lies too deep.
  bool is_cut() const { return is_cut_; }
  /// Of a container: how many items it had.
  Py_ssize_t length() const { return length_; }
  /// What it was: the value, or a container made of what it held.
  py::object before() const;
  /// Whether it is an int or a float, compared by value.
  bool is_number() const { return kind_ == Kind::kInteger || kind_ == Kind::kReal; }
  /// Whether `now`, a container, has come in the place of one of the same class and size; of one
  /// that is compared by its content that is not known. What grows would be another kind of
  /// argument in each call.
  bool is_replaced_by(PyObject* now) const {
    if (kind_ == Kind::kTuple) return PyTuple_CheckExact(now);
    return kind_ == Kind::kIdentity && value_.get() != nullptr &&
           Py_TYPE(value_.get()) == Py_TYPE(now) && PyList_Check(now) + PyDict_Check(now) > 0 &&
           size_of(value_.get()) == size_of(now);
  }
  /// The object that it must be, borrowed; null where another one does, or it is gone.
  PyObject* object() const { return kind_ == Kind::kIdentity ? value_.get() : nullptr; }
  /// Whether `now` is another object, which may stand for the one that it was.
  bool may_be(PyObject* now) const {
    return kind_ == Kind::kIdentity && value_.get() != nullptr && value_.get() != now &&
           may_stand_for(value_.get(), now);
  }
  /// Whether it is None.
  bool is_none() const { return kind_ == Kind::kIdentity && value_.get() == Py_None; }
  /// Where the value is the dict `now`, which was just found as it was: what remembers that, or
  /// null.
  const DictMemo* memo_of(PyObject* now) const;
  /// The first place where `now` differs, which it does.
  Change change(PyObject* now) const;
  /// The same where a place got another value, in which nothing can be assigned: a tuple as a
  /// whole.
  Change change_of_place(PyObject* now) const;
  /// Of a list, dict or deque the keys of the items that differ in `now`, are numbers which are
  /// followed, or stand where anything may; none where it has not as many in the same order.
  std::optional<std::vector<py::object>> changed_items(PyObject* now) const;
  /// Whether the item that was there under a key, of those, was a number.
  bool is_number_at(const py::object& key) const;

 private:
  enum class Kind {
    kIdentity,
    kAnything,
    kTensor,  ///< by identity, held weakly
    kMethod,  ///< bound, which Python makes anew each time: by its object and its function
    kInteger,
    kReal,
    kText,
    kTuple,
    kList,
    kDeque,
    kSet,
    kDict,
    kObject,  ///< of a class that only holds attributes
    kHooks,
    kLength,
    kIterated,  ///< of what can only be gone over: a view of a dict, a range
    kBytes      ///< of an array; its class is the only key
  };
  Plain() = default;
  void take_items(Roots& roots, PyObject* sequence, int depth);
  void take_references(Roots& roots, PyObject* sequence, int depth = kDeepestTuple);
  void take_dict(Roots& roots, PyObject* dict, int depth);
  /// An array, or a scalar of NumPy: its class, shape, kind and bytes.
  static Plain bytes(Roots& roots, PyObject* array);
  static Plain content_of(Roots& roots, PyObject* value, int depth);
  /// Whether the object that was there is held weakly and no more.
  bool is_gone() const { return !value_.is_empty() && value_.get() == nullptr; }
  bool same_content(PyObject* now) const;
  bool let_item_move(std::size_t i, PyObject* owner, PyObject* key, PyObject* item,
                     const MovingPlaces& moving);
  bool same_attributes(PyObject* now) const;
  bool same_items(PyObject* now) const;
  /// How many items differ, of as many as there were in the same order; 2 when that is not so.
  int differing(PyObject* now) const;
  bool same_dict(PyObject* now) const;

  std::string words() const;

  Kind kind_ = Kind::kIdentity;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  Root value_;  ///< of a list or dict its class: the step may fill and drop it
  double real_ = 0;
  Py_ssize_t length_ = 0;
  std::vector<Root> keys_;
  std::vector<Plain> items_;
  mutable DictMemo memo_;  ///< of a dict
  Root factory_;           ///< of a defaultdict
  Root only_;              ///< the container that it must be; null where an equal one does
  /// Of a container of a class of the program's, where all that is in it counts: its instance dict,
  /// if anything is in that.
  std::vector<Plain> attributes_;
  bool has_attributes_ = false;
  bool is_cut_ = false;
};

/// Whether an equal one does as well: a list, dict or set, or an object that only holds attributes.
bool is_compared_by_content(PyObject* object);

/// Whether no list, tuple, dict, set or holder of attributes stands in it twice, and none of them,
/// itself included, is `out_of_question`.
bool are_parts_apart(PyObject* container,
                     const std::function<bool(PyObject*)>& out_of_question = {});

/// Whether it is a collections.defaultdict, and of no class made of that.
bool is_default_dict(PyObject* object);
/// What a dict of defaultdict's, or of a class made of it, calls for a missing key, by C's own way;
/// null of any other object.
py::object factory_of(PyObject* object);
/// Whether it is a weak reference to what is gone, as the step leaves one to what it has made: one
/// stands for another.
bool is_dead_reference(PyObject* object);
/// Whether it is a collections.deque.
bool is_deque(PyObject* object);
/// How many items a deque may have; infinity where it has no `maxlen`.
double most_of(PyObject* deque);
/// Whether it is a deque that has a `maxlen`.
bool is_bounded(PyObject* object);

/// Whether finding a key among others runs none of the user's code.
bool is_plain_key(PyObject* key);
/// The entry of a dict, borrowed; null when there is none. Finds keys of other types than str and
/// int by their identity, since their own code says what is equal: see `own_key`.
PyObject* find_entry(PyObject* dict, PyObject* key);
/// That key of the dict's which is equal to `key`, borrowed: `key` itself where there is none. Null
/// where only code of the user's can tell.
PyObject* own_key(PyObject* dict, PyObject* key);

/// Whether all that an object holds is bytes that can be compared: arrays of NumPy and of `array`.
bool is_array(PyObject* object);
/// Whether it is an array of NumPy's own class.
bool is_array_of_numpy(PyObject* object);
/// A scalar of NumPy: a value that cannot change, and an object of its own each time.
bool is_scalar_of_numpy(PyObject* object);
/// Whether the program has put a mapping of its own into the dtype (`numpy.dtype.metadata`), which
/// no bytes show.
bool has_notes(PyObject* object);
/// Whether it is an array of NumPy whose bytes are the addresses of what it holds.
bool holds_objects(PyObject* object);
/// Of an array of NumPy.
bool has_fields(PyObject* array);
/// Shape, kind and bytes of an array, or an empty object where there are too many or they do not
/// show all of it.
py::object bytes_of_array(PyObject* array);

}  // namespace steptape::python
