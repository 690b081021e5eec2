#include "python/engine/formulas.h"

namespace steptape::python {

trace::Formula formula_of(recorder::Notes& notes, const py::tuple& nodes) {
  trace::Formula formula;
  for (const py::handle& node : nodes) {
    trace::Node& added = formula.nodes.emplace_back();
    if (PyFloat_Check(node.ptr()) || PyLong_Check(node.ptr())) {
      added.constant = {py::cast<double>(node)};
    } else if (PyTuple_Check(node.ptr())) {
      const auto leaf = py::reinterpret_borrow<py::tuple>(node);
      added.operation = trace::Operation::kLeaf;
      added.leaf = notes.leaf(trace::leaf_kind_of(py::cast<std::string>(leaf[0])),
                              py::cast<std::string>(leaf[1]));
    } else {
      added.operation = trace::operation_of(py::cast<std::string>(node));
    }
  }
  return formula;
}

}  // namespace steptape::python
