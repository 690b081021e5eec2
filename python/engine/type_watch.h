#pragma once

#include <map>
#include <memory>
#include <vector>

#include "python/engine/plain.h"
#include "python/engine/roots.h"

namespace steptape::python {

/// A class gets a version when something is looked up in it, and loses it when it is modified; zero
/// where CPython gives it none.
unsigned int version_of(PyTypeObject* type);

/// What operators and functions of C's find in a class and those it is made of (`__add__`,
/// `__float__`): a tuple of names and methods in turn.
py::object methods_of(PyTypeObject* type);

/// What a class and its bases held, so that a replaced `forward` or a changed class attribute is
/// noticed. Costs a load and a compare while no class in its hierarchy was modified.
class TypeWatch {
 public:
  TypeWatch(Roots& roots, PyTypeObject* type);

  bool same() const;
  /// The first attribute that differs: "forward"; "" when none does.
  std::string changed_name() const;
  PyTypeObject* type() const { return as_type(type_.get()); }

 private:
  struct Attribute {
    Root key;
    Plain value;
  };
  struct Base {
    Root type;
    std::vector<Attribute> attributes;
    Py_ssize_t size = 0;
  };
  static std::string added_name(const Base& base, PyObject* dict);
  void find_mutable() const;

  Root type_;
  mutable unsigned int version_;  ///< CPython's: zero when it gave the type none
  Plain order_;                   ///< of resolution
  std::vector<Base> bases_;       ///< in that order; built-in ones cannot change
  /// Attributes whose content may change while they stay the same objects, and these objects.
  mutable std::vector<std::pair<const Plain*, PyObject*>> mutable_;
};

/// One watch for each class.
class TypeWatches {
 public:
  /// Watches of classes that are what they were are taken from `kept`, where new ones are left.
  using Kept = std::map<PyTypeObject*, std::shared_ptr<const TypeWatch>>;
  TypeWatches(Roots& roots, Kept& kept) : roots_(roots), kept_(kept) {}
  const TypeWatch* of(PyTypeObject* type);
  /// Whether all classes are as they were.
  bool same() const;

 private:
  Roots& roots_;
  Kept& kept_;
  Kept watches_;
};

}  // namespace steptape::python
