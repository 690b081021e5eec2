#pragma once

#include <memory>
#include <string>
#include <vector>

#include "python/engine/plain.h"
#include "python/engine/type_watch.h"
#include "steptape/verdict.h"

namespace steptape::python {

/// A place that holds a value: a closure cell, an entry of a dict (a global, an attribute), the
/// code or the defaults of a function, a class with all its attributes, or the class or the dict of
/// an object.
struct Slot {
  std::string path;  ///< "tau", "config.scale"
  Root owner;        ///< a cell, a dict, a function, a class or, with `of_object`, any
  Root key;          ///< null for a cell and a class
  bool is_guarded;   ///< the step names it, so that a plan depends on it
  bool of_object;    ///< the key is "__class__" or "__dict__", of the owner itself

  PyObject* value() const;  ///< borrowed; null when there is none
};

/// What a list of slots held at one moment.
class SlotWatch {
 public:
  SlotWatch(Roots& roots, std::shared_ptr<const std::vector<Slot>> slots);

  /// The first mismatch, with a path below the object that holds the slots.
  Verdict check() const;
  struct SlotChange {
    const Slot* slot;
    Change change;
  };
  std::vector<SlotChange> changes() const;

 private:
  std::shared_ptr<const std::vector<Slot>> slots_;
  std::vector<Plain> values_;
  TypeWatches types_;
  std::vector<std::pair<const Slot*, const TypeWatch*>> classes_;
};

}  // namespace steptape::python
