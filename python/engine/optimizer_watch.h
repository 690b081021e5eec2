#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/foreign.h"
#include "python/engine/module_watch.h"

namespace steptape::python {

/// A torch.optim.Optimizer as it was: class, attributes, hooks, groups, the parameters in them, and
/// which state there is; and where its numbers stand, to be read at each step.
class OptimizerWatch {
 public:
  /// `is_idle`: its state is left out.
  OptimizerWatch(Roots& roots, MovingPlaces& moving, TypeWatches& types, PyObject* optimizer,
                 bool is_idle);
  /// Gives the state of each parameter the path of that.
  void name(const live::PathOf& path_of);

  Verdict check() const;
  /// Whether there is state for the same parameters, and the same objects in it but for numbers.
  bool has_same_state() const { return !first_change(true).has_value(); }
  const std::vector<std::string>& names() const { return names_; }
  /// As live::ForeignWatch has it.
  std::size_t read(std::span<double> values) const;
  /// Adds to number `k`, an int that stands in a dict.
  void advance(std::size_t k, std::int64_t by) const;
  void note_moving() const;
  void let_go();
  /// Attributes, hyperparameters and host numbers of state that differ now.
  std::vector<HostChange> changes() const;

 private:
  /// A number in a dict, or in a tuple or list that stands there.
  struct Number {
    std::size_t dict;  ///< in `fixed_`
    Root key;
    Py_ssize_t item;   ///< -1: the value itself
    Py_ssize_t items;  ///< in the tuple
    PyTypeObject* type;
  };
  /// The dict of a group, or of one parameter's state: what is not a number in it.
  struct Fixed {
    std::string path;
    Root key;  ///< of a state: the parameter; null for a group
    Py_ssize_t group = -1;
    Py_ssize_t size = 0;
    struct Entry {
      Root key;
      Plain plain;
      HeldContainer held;
    };
    std::vector<Entry> entries;
    std::size_t numbers = 0;  ///< how many of `numbers_` stand in it, from `first` on
    std::size_t first = 0;
    DictMemo memo;              ///< of the entries
    std::uint64_t version = 0;  ///< of the dict when its numbers were read
  };

  void add_dict(Roots& roots, std::string path, Py_ssize_t group, PyObject* parameter,
                PyObject* dict);
  /// `value`: of the dict, or item `item` of `items` in a tuple that stands there.
  void add_number(Roots& roots, PyObject* key, PyObject* value, Py_ssize_t item = -1,
                  Py_ssize_t items = 0);
  /// The dicts as they are now; null for one that is gone. They may have been replaced by equal
  /// ones.
  void find_dicts() const;
  static bool same_entries(Fixed& fixed, PyObject* dict);
  /// The first difference in groups and state, or in the state alone.
  std::optional<Verdict> first_change(bool of_state) const;
  /// Into `newest_`; the position of the first that is of another kind, or gone, or kAllRead.
  std::size_t read_numbers(const Fixed& fixed) const;
  PyObject* value_of(const Number& number) const;
  static void add_changes(const Fixed& fixed, PyObject* dict, std::vector<HostChange>& changes);

  Root optimizer_;
  const TypeWatch* type_;
  bool is_idle_;
  const MovingPlaces& moving_;
  DictWatch attributes_;
  Py_ssize_t groups_ = 0, state_ = 0;
  mutable std::vector<Fixed> fixed_;
  mutable std::vector<PyObject*> dicts_;     ///< one for each of `fixed_`, of the newest look
  mutable std::uint64_t state_version_ = 0;  ///< of the dict of state at that look
  std::vector<Number> numbers_;
  mutable std::vector<double> newest_;  ///< what was read last of each number
  std::vector<double> recorded_;
  std::vector<std::string> names_;
};

/// Borrowed: `param_groups`, a list of dicts, and `state`, a dict of dicts; null where it is no
/// such.
PyObject* groups_of(PyObject* optimizer);
PyObject* state_of(PyObject* optimizer);

}  // namespace steptape::python
