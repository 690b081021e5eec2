#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <utility>

/// References that C++ holds to Python objects, in a form that Python's garbage collector can
/// follow: a step's function, its closure and the modules in it often lead back to the step.
namespace steptape::python {

class Roots;

/// One reference, a strong one but for those of `weak` and `guarding`. Needs the GIL whenever it is
/// made, moved or let go of.
class Root {
 public:
  Root() = default;
  Root(Roots& roots, PyObject* object);  ///< empty where it is null
  /// Throws what Python raises for an object that no reference can be weak to.
  static Root weak(Roots& roots, PyObject* object);
  /// For a guard on what the program holds: weak where the program holds the object weakly, too.
  /// Who asks such a reference whether the object is still there must not find it kept by a guard.
  /// Classes are in cycles of their own, with many weak references; these are held.
  static Root guarding(Roots& roots, PyObject* object);
  /// A strong one, for what is known by its address: no other takes the place of that object.
  static Root pinned(Roots& roots, PyObject* object);
  Root(Root&& other) noexcept;
  Root& operator=(Root&& other) noexcept;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root() { reset(); }

  /// Borrowed; null for an empty one, when the collector has cleared it, and when the object of a
  /// weak one is gone.
  PyObject* get() const noexcept { return is_weak_ ? referent() : object_; }
  /// Whether it was made of no object; one that is gone counts.
  bool is_empty() const noexcept { return object_ == nullptr; }
  void reset() noexcept;

 private:
  friend class Roots;
  void link(Roots* roots) noexcept;
  void unlink() noexcept;
  PyObject* referent() const noexcept;

  PyObject* object_ = nullptr;  ///< or the weak reference to it
  bool is_weak_ = false;
  bool is_pinned_ = false;
  Roots* roots_ = nullptr;
  Root* next_ = nullptr;
  Root* previous_ = nullptr;
};

/// All references of one session. Must outlive every Root that is made over it.
class Roots {
 public:
  Roots() = default;
  ~Roots();
  Roots(const Roots&) = delete;
  Roots& operator=(const Roots&) = delete;

  int visit(visitproc visitor, void* argument) const;
  /// How many strong references to the object are among them.
  Py_ssize_t count(PyObject* object) const noexcept;
  /// Each second object takes the place of the first one, in all references. False, and nothing is
  /// done, where one is to a second object already, as which of the two it is would no longer show,
  /// and where the first one is pinned.
  bool replace(std::span<const std::pair<PyObject*, PyObject*>> pairs);
  /// How often that was done.
  std::uint64_t times_replaced() const noexcept { return times_replaced_; }
  void clear();

 private:
  friend class Root;
  Root* first_ = nullptr;
  std::uint64_t times_replaced_ = 0;
};

}  // namespace steptape::python
