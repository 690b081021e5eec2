#include "python/engine/tensor_hooks.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "live/hooks.h"
#include "python/engine/python.h"

namespace steptape::python {
namespace {

/// The dicts in which `torch.Tensor.register_hook` and its like keep what they are given.
class PythonHooks final : public live::HookList {
 public:
  explicit PythonHooks(const THPVariable& tensor) {
    add(tensor.backward_hooks);
    add(tensor.post_accumulate_grad_hooks);
  }
  ~PythonHooks() override {
    const py::gil_scoped_acquire lock;
    hooks_.clear();
  }
  PythonHooks(const PythonHooks&) = delete;
  PythonHooks& operator=(const PythonHooks&) = delete;

  bool same(const live::HookList& other) const override {
    const py::gil_scoped_acquire lock;
    const auto is_same = [](const Hook& a, const Hook& b) {
      if (a.key != b.key || a.hook != b.hook) return false;
      // the address of one that is gone may serve another
      return std::ranges::all_of(std::array{&a, &b}, [](const Hook* each) {
        return !each->weak || referent_of(each->weak.ptr()) == each->hook;
      });
    };
    return std::ranges::equal(hooks_, static_cast<const PythonHooks&>(other).hooks_, is_same);
  }

 private:
  struct Hook {
    Py_hash_t key;
    PyObject* hook;   ///< for its address alone
    py::object weak;  ///< to it, where it can be
  };

  void add(PyObject* dict) {
    hooks_.push_back({dict == nullptr, nullptr, {}});
    if (dict == nullptr || !PyDict_Check(dict)) return;
    for (const auto& [key, hook] : entries_of(dict)) {
      PyObject* weak = PyWeakref_NewRef(hook, nullptr);
      hooks_.push_back({PyObject_Hash(key), hook, py::reinterpret_steal<py::object>(weak)});
      PyErr_Clear();
    }
  }

  std::vector<Hook> hooks_;
};

std::shared_ptr<const live::HookList> hooks_of(const c10::TensorImpl& tensor) {
  const auto* object = reinterpret_cast<THPVariable*>(tensor.pyobj_slot()->load_pyobj());
  if (object == nullptr) return nullptr;
  const py::gil_scoped_acquire lock;
  return std::make_shared<PythonHooks>(*object);
}

}  // namespace

void watch_tensor_hooks() { live::set_hook_lists(hooks_of); }

}  // namespace steptape::python
