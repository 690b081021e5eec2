#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "steptape/pack.h"

namespace steptape::python {

/// Whether it is a number of python/steptape/_follow.py, or a class of such numbers.
bool is_followed(PyObject* number);
bool is_of_numbers(PyObject* type);
/// Whether the object is of a dataclass.
bool is_dataclass(PyObject* object);
/// Whether an object is known by its identity: it cannot change, or what is in it is watched by
/// other means (types, functions, modules, dtypes, devices, enumerators).
bool is_fixed(PyObject* object);

/// Whether it is a module or an optimizer.
bool is_part_of_model(PyObject* object);

/// The result of a step, taken apart: tensors, numbers, and the structure that they stood in, from
/// which a replay makes an equal one around its own tensors and numbers.
class Structure {
 public:
  /// Called for each number with its position among them.
  using OnNumber = std::function<void(std::size_t, PyObject*)>;
  /// Takes `result` apart into `flat`. `references`: to the result, by those that call this.
  Structure(Roots& roots, PyObject* result, Py_ssize_t references, pack::Results& flat,
            const OnNumber& on_number);

  /// Puts one together; takes the tensors and numbers in their order.
  py::object build(const pack::Results& flat) const;
  /// Structure and constants in words, to be compared between two probes.
  const std::string& text() const { return text_; }
  /// The type of a part that cannot be made again, or empty.
  const std::string& opaque() const { return opaque_; }
  /// Whether a tensor in it is of a class made of torch.Tensor.
  bool has_subclass() const { return has_subclass_; }

 private:
  enum class Kind { kTensor, kNumber, kConstant, kTuple, kNamedTuple, kList, kDict, kObject };
  struct Node {
    Kind kind = Kind::kConstant;
    bool is_inference = false;  ///< of a tensor: made under inference mode
    Root object;                ///< the constant, or the class of a container
    std::vector<Root> keys;
    std::vector<Node> items;
  };
  struct Next {
    std::size_t tensor = 0, number = 0;
  };

  struct Taking {
    Roots& roots;
    pack::Results& flat;
    const OnNumber& on_number;
  };
  Node take(const Taking& into, PyObject* value, Py_ssize_t references, int depth);
  void take_items(const Taking& into, PyObject* sequence, Node& node, int depth);
  void take_dict(const Taking& into, PyObject* dict, Node& node, int depth);
  py::object build(const Node& node, const pack::Results& flat, Next& next) const;
  static py::object build_named(const Node& node, const py::list& items);
  static py::object build_dict(const Node& node, const py::list& items);

  std::string text_;
  std::string opaque_;
  bool has_subclass_ = false;
  std::set<PyObject*> containers_;  ///< lists, dicts and objects that were met
  Node root_;
};

}  // namespace steptape::python
