#pragma once

#include <pybind11/pybind11.h>

#include <utility>

/// References that C++ holds to Python objects, in a form that Python's garbage collector can
/// follow: a step's function, its closure and the modules in it often lead back to the step.
namespace steptape::python {

class Roots;

/// One strong reference. Needs the GIL whenever it is made, moved or let go of.
class Root {
 public:
  Root() = default;
  Root(Roots& roots, PyObject* object);
  Root(Root&& other) noexcept;
  Root& operator=(Root&& other) noexcept;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root() { reset(); }

  /// Borrowed; null for an empty one, and when the collector has cleared it.
  PyObject* get() const noexcept { return object_; }
  void reset() noexcept;

 private:
  friend class Roots;
  void link(Roots* roots) noexcept;
  void unlink() noexcept;

  PyObject* object_ = nullptr;
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
  void clear();

 private:
  friend class Root;
  Root* first_ = nullptr;
};

}  // namespace steptape::python
