#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/engine/moving.h"
#include "python/engine/plain.h"
#include "steptape/verdict.h"

namespace steptape::python {

/// A place that a step reads or writes.
struct Slot {
  enum class Kind {
    kEntry,      ///< of the dict `owner` under `key`: a global, an attribute, an item
    kState,      ///< the same, with all that is in it
    kCell,       ///< what the cell `owner` holds
    kItem,       ///< of the list `owner` at position `key`
    kSize,       ///< of the container `owner`
    kMost,       ///< how many items the deque `owner` may have
    kHas,        ///< whether the dict or set `owner` has `key`
    kKeys,       ///< of the dict `owner`, in order
    kContent,    ///< the items of the container `owner`, each by its value or identity
    kWhole,      ///< the container or object `owner` with all that is in it
    kClass,      ///< of the object `owner`
    kAttribute,  ///< that instances of the class `owner` find under `key`
    kHolder,     ///< which class that `owner` is made of has `key`
    kMethods,    ///< `__add__` and the like, of the class `owner` and those it is made of
    kMember,     ///< that a descriptor of C's gives of `owner` under `key`
    kFunction,   ///< `key` of the function `owner`: its code or its defaults
    kNamespace,  ///< the dict of the object `owner`, which may be exchanged
    kVariable,   ///< what the context variable `owner` holds
    kCache,      ///< how much the `functools.lru_cache` of the function `owner` has kept
    kReferent,   ///< of the weak reference `owner`
    kHandled,    ///< the exception that the caller of the step handles; `owner`: what asks for it
    kRunning,    ///< which process or thread runs the step; `owner`: the function that tells
    kLocked,     ///< whether somebody has the lock `owner`
  };
  Kind kind;
  std::string path;  ///< "tau", "config.scale"
  Root owner;
  Root key;                      ///< null where the kind asks for none
  bool is_guarded = true;        ///< read before it was written, so that a plan depends on it
  bool is_written = false;       ///< by an assignment
  bool is_changed = false;       ///< the container, by a method or an item
  bool is_appended_to = true;    ///< where it is changed: in no other way
  Py_ssize_t appended = 0;       ///< and by how many items
  bool is_looked_after = false;  ///< another slot says how it changed
  std::size_t came = 0;  ///< of an entry: its turn among all that come to dicts, were it not there
  std::string place = {};  ///< the line that wrote it, or else that first read it
  /// Of kMethods: CPython's version of the class when it was last compared, or 0.
  mutable unsigned int version = 0;

  /// Null when there is none. Runs none of the user's code.
  py::object value() const;
  /// `value` as this kind of place compares it.
  Plain plain(Roots& roots, const py::object& value) const;
  /// Whether what it holds is the program's own, and not a size or the like.
  bool holds_value() const {
    return is_assignable() || kind == Kind::kReferent || kind == Kind::kVariable;
  }
  /// Whether something can be assigned to it (put_at).
  bool is_assignable() const {
    return kind == Kind::kEntry || kind == Kind::kState || kind == Kind::kCell ||
           kind == Kind::kItem || kind == Kind::kAttribute || kind == Kind::kMember;
  }
};

/// Slots with what they held when they were first met.
class SlotWatch {
 public:
  /// Numbers and tensors in slots that are not what they were are noted in `moving`; the places
  /// that are there already have slots from the start, so that what the step leaves in them is
  /// seen, whoever writes it.
  SlotWatch(Roots& roots, MovingPlaces& moving);

  /// Adds a slot that holds `value` now, and gives its position.
  std::size_t add(Slot slot, const py::object& value);
  /// An item or attribute was assigned, or it was asked which object one is: what holds it must
  /// stay the object that it is.
  void hold_containers() const { holds_containers_ = true; }
  /// The step has met these, with their paths, which were there before it: which of the arguments
  /// are such, and which, is held to what it is in this call.
  void know(const std::vector<std::pair<PyObject*, std::string>>& objects);
  Slot& slot(std::size_t position) { return slots_[position]; }
  /// Whether all that it held is compared.
  bool is_compared(std::size_t position) const { return !values_[position].is_cut(); }
  /// How many items the container of a kContent or kWhole had when it was met.
  Py_ssize_t size_when_met(std::size_t position) const { return values_[position].length(); }
  /// Whether it holds what it held when it was met.
  bool same(std::size_t position) const;
  /// Whether something stood there when it was met.
  bool held_some(std::size_t position) const { return !values_[position].same(nullptr); }
  const std::vector<Slot>& slots() const { return slots_; }

  /// The first mismatch, with a path below the object that holds the slots.
  Verdict check() const;
  struct SlotChange {
    const Slot* slot;
    Change change;
    bool moves = false;  ///< read before it was written, and MovingPlaces may note it
    std::optional<Py_ssize_t> appended = {};  ///< from there on items were added, and that is all
    Before before = Before::kUnread;
  };
  /// What the places that are guarded held, as words; of containers nothing.
  std::map<std::string, std::string> guarded() const;
  /// Numbers and tensors that are other ones now are noted as such that move.
  void note_moving() const;
  /// What differs now, and what was assigned, though it may be the same. A container that a method
  /// changed in another way than by appending is guarded from here on: what became of one that held
  /// something else nobody knows.
  std::vector<SlotChange> changes() const;

 private:
  /// Whether a container took the place of an equal one.
  bool was_replaced(std::size_t position, PyObject* now) const;
  /// Whether an item that the step writes, and which was there, is not, so that to write it throws.
  bool is_gone(std::size_t position) const;
  Verdict mismatch(std::size_t position) const;
  bool moves(std::size_t position) const;
  /// Whether another object of its class stands for what stood there: one that the step has not put
  /// there, or has put in the place of one that it changes.
  bool is_exchanged(std::size_t position) const;
  bool is_changed_in_place(PyObject* held) const;
  /// Whether what the step asked a dict about, and which was another answer before, comes of
  /// entries that it has assigned since, as replays do, too.
  bool is_by_own_entries(std::size_t position) const;
  /// Whether what a class has under a name is what the step has set in one of its bases.
  bool is_set_in_base(const Slot& slot) const;
  bool is_written_array(std::size_t position) const;
  /// The same of items of a container that was gone over: their keys.
  std::vector<py::object> moving_items(std::size_t position) const;
  /// From where on items were added to a container that nothing else was done to.
  std::optional<Py_ssize_t> appended(std::size_t position, const py::object& now) const;
  bool is_read(const Slot& slot) const;
  bool is_seen_growing(PyObject* container) const;
  /// Which argument is another one than in the recorded call, as far as the step could tell.
  Verdict check_known() const;
  /// Entries that are written are in the order in which they come to a dict that has none of them:
  /// a replay adds those that it does not find.
  void put_in_order(std::vector<SlotChange>& changes) const;
  void add_content_changes(std::size_t position, const py::object& now,
                           std::vector<SlotChange>& changes) const;

  Roots& roots_;
  MovingPlaces& moving_;
  mutable std::vector<Slot> slots_;
  std::vector<Plain> values_;
  std::vector<std::pair<std::size_t, Plain>> containers_;  ///< what stood in a slot, with all in it
  mutable bool holds_containers_ = false;
  struct Known {
    Root object;
    std::string path;
  };
  /// Of the arguments the one at each position, or null: none that the step has met elsewhere.
  const Known* known(PyObject* argument) const;
  std::vector<Known> known_;
  mutable std::unordered_map<PyObject*, std::size_t> positions_;  ///< of these, by the object
  mutable std::uint64_t times_replaced_ = 0;                      ///< as these were found
  std::vector<const Known*> known_arguments_;
  std::vector<std::size_t> alike_;  ///< of the arguments, too: the first that is the same object
};

}  // namespace steptape::python
