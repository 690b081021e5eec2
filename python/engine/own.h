#pragma once

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "python/engine/python.h"

/// What Steptape puts where the program can see it, while any thread records: hooks for all
/// modules. What compares the program's state, in this thread or another, leaves them out. All
/// under the GIL.
namespace steptape::python {

/// Tells the recorder which module runs, in the thread that has made it: a hook that torch calls
/// before or after each forward.
class ModuleHook {
 public:
  using Paths = std::unordered_map<PyObject*, std::string>;
  /// Paths by module, borrowed; "" is reported for others.
  ModuleHook(std::shared_ptr<const Paths> paths, bool is_before)
      : paths_(std::move(paths)), is_before_(is_before) {}
  void operator()(PyObject* module) const;

 private:
  std::shared_ptr<const Paths> paths_;
  bool is_before_;
  std::thread::id thread_ = std::this_thread::get_id();
};

/// The class of these hooks. Kept for ever.
inline PyTypeObject* own_hook_class = nullptr;
inline bool is_own_hook(PyObject* object) {
  return object != nullptr && Py_TYPE(object) == own_hook_class;
}

}  // namespace steptape::python
