#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "live/foreign.h"
#include "python/engine/moving.h"
#include "python/engine/plain.h"
#include "python/engine/type_watch.h"
#include "steptape/verdict.h"

namespace steptape::python {

/// A list or dict, and those in it: to tell whether another one took its place, whatever it holds.
class HeldContainer {
 public:
  /// Of anything else it is empty, as of a container of too many items.
  HeldContainer(Roots& roots, PyObject* value, int depth = Plain::kDepth);
  /// After how many of `keys`, which lead into `now`, another container stands than there was; none
  /// where all are those.
  struct Replaced {
    std::size_t depth;
    bool has_grown;  ///< or shrunk
  };
  std::optional<Replaced> replaced_at(PyObject* now, const py::list& keys) const;
  /// Whether `now`, which looks as it did, is another one with tensors.
  bool is_another(PyObject* now) const;
  /// The same of what differs in `now`, which becomes the change of that container as a whole.
  std::optional<Replaced> widen(Change& change, PyObject* now) const;
  /// Drops the references. After that it tells apart only what is still alive.
  void let_go();

 private:
  Root object_;  ///< so that no other gets its address
  PyObject* address_ = nullptr;
  Py_ssize_t size_ = 0;
  std::vector<std::pair<py::object, HeldContainer>> inner_;
};

/// What a step changed on the host, or would have to be told not to.
struct HostChange {
  std::string path;       ///< "model.fc1.calls", "host.losses"
  py::object owner, key;  ///< where it can be assigned again: a dict and a key, or a cell; or null
  Change change;
  bool moves = false;  ///< it is another one, was read before, and MovingPlaces may note it
  Before before = Before::kUnread;
  std::string place = {};                   ///< the line that did it, where that is known
  std::optional<Py_ssize_t> appended = {};  ///< see SlotWatch::SlotChange
};

/// What the step has read of an object's attributes: those of these names, or all but those.
struct AttributeReads {
  bool are_all = false;
  std::vector<py::object> names = {};
};

/// What the instance dict of an object held: modules, optimizers and plain objects alike.
class DictWatch {
 public:
  /// How an entry is compared.
  enum class Rule { kPlain, kMembers, kHooks, kSkip, kMoves };  // kMoves: not at all, elsewhere
  using RuleOf = Rule (*)(std::string_view name);

  /// Entries that are in `moving` are not compared.
  DictWatch(Roots& roots, MovingPlaces& moving, PyObject* dict, RuleOf rule_of);

  /// From here on `same` compares those plain entries alone that were read, which have none where
  /// there was none.
  void compare_only(const AttributeReads& reads);

  bool same(PyObject* dict) const;
  /// Every entry that differs now, by its name; added and removed ones too.
  /// `with_equal`: and each container with tensors in whose place an equal one came.
  std::vector<HostChange> changes(PyObject* dict, bool with_equal = false) const;
  /// A plan is made: what is held only to tell containers apart is let go of.
  void let_go() {
    for (Entry& entry : entries_) entry.held.let_go();
  }
  /// The first of those that `same` compares.
  std::optional<HostChange> mismatch(PyObject* dict) const;
  /// Numbers and tensors that are other ones now are noted as such that move, under `path`.
  void note_moving(const std::string& path, PyObject* dict) const;

 private:
  struct Entry {
    Root key;
    Rule rule;
    Plain plain;
    HeldContainer held;  ///< of a plain one, or one that moves
    bool is_compared = true;
  };
  bool compares(const HostChange& change) const;
  static bool add_moved_buffers(const Entry& entry, PyObject* found,
                                std::vector<HostChange>& changes);
  static Plain made(Roots& roots, PyObject* value, Rule rule);

  MovingPlaces& moving_;
  RuleOf rule_of_;
  std::vector<Entry> entries_;
  bool compares_all_ = true;
  std::vector<py::object> absent_;  ///< names that were asked for and had no entry
  mutable DictMemo memo_;
};

/// Class and attributes of an object, as a verdict with `path` before what differs; `types_same`:
/// the class, if it is that one still, was found unchanged already.
Verdict check_object(const std::string& path, PyObject* object, const TypeWatch& type,
                     bool types_same, const DictWatch& attributes);

/// One module of a tree as it was: class, attributes, what is registered in it.
class ModuleWatch {
 public:
  ModuleWatch(Roots& roots, MovingPlaces& moving, TypeWatches& types, std::string path,
              PyObject* module);

  /// The first mismatch, as a verdict with a path below the root; see check_object.
  Verdict check(bool types_same) const;
  void note_moving() const;
  /// See DictWatch.
  void compare_only(const AttributeReads& reads) { attributes_.compare_only(reads); }
  /// The attributes that differ now, or were replaced.
  std::vector<HostChange> changes() const;
  void let_go() { attributes_.let_go(); }
  const std::string& path() const { return path_; }
  PyObject* module() const { return module_.get(); }

 private:
  std::string path_;  ///< ".fc1", or "" for the root
  Root module_;
  const TypeWatch* type_;
  DictWatch attributes_;
};

}  // namespace steptape::python
