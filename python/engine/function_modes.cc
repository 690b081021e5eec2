#include "python/engine/function_modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <Python.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/pybind.h>

#include "live/ambient.h"

namespace steptape::python {
namespace {

/// torch.utils._device.DeviceContext; never released: modes may be looked at while Python ends.
PyObject* device_context() {
  static PyObject* const type =
      py::object(py::module_::import("torch.utils._device").attr("DeviceContext")).release().ptr();
  return type;
}

live::FunctionModes read() {
  const py::gil_scoped_acquire gil;
  live::FunctionModes modes;
  // the newest comes last, and is asked first
  for (std::int64_t i = at::impl::PythonTorchFunctionTLS::stack_len(); i-- > 0;) {
    const auto& mode = at::impl::PythonTorchFunctionTLS::get_stack_at(i);
    const py::handle object(mode->ptr(getPyInterpreter()));
    if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != device_context()) return {true};
    if (!modes.default_device) modes.default_device = py::cast<c10::Device>(object.attr("device"));
  }
  return modes;
}

}  // namespace

void watch_function_modes() {
  device_context();
  live::read_function_modes_by(&read);
}

}  // namespace steptape::python
