#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "steptape/pack.h"

namespace steptape::python {

/// Whether the object is of a dataclass.
bool is_dataclass(PyObject* object);
/// What stands in the dict of its attributes, borrowed.
std::vector<std::pair<PyObject*, PyObject*>> attributes_of(PyObject* object);
/// Whether an attribute of a container is its entry of that name, or None without one: the outputs
/// of transformers' models have their items as attributes, too.
bool mirrors_entry(PyObject* container, PyObject* name, PyObject* held);
/// Whether objects of a class hold something in slots.
bool has_slots(PyTypeObject* type);
/// Whether an object is nothing but its class and its attributes, so that an equal one can be made:
/// of a dataclass, a SimpleNamespace, or a class of Python's without slots or a `__new__` of its
/// own.
bool is_plain_object(PyObject* object);
/// Whether an object is known by its identity: it cannot change, or what is in it is watched by
/// other means (types and what is joined of them, functions, modules, dtypes, devices,
/// enumerators).
bool is_fixed(PyObject* object);

/// Whether it is a module or an optimizer.
bool is_part_of_model(PyObject* object);
/// Whether code of C's in torch keeps something in its objects that cannot be compared: a storage,
/// a future, a list or dict of TorchScript's.
bool keeps_to_itself(PyTypeObject* type);
/// Whether what its methods of C's give follows from what is compared of it, or from nothing.
bool never_changes(PyObject* value);

/// The tensor whose memory an array of NumPy is, as `Tensor.numpy` makes them; undefined for any
/// other object.
at::Tensor tensor_behind(PyObject* array);

/// What a step leaves, its result and the values that it assigned, taken apart: tensors, numbers,
/// and the structure that they stood in, from which a replay makes equal ones around its own
/// tensors and numbers.
class Structure {
 public:
  /// Called for each number with its position among them.
  using OnNumber = std::function<void(std::size_t, PyObject*)>;
  struct Part {
    PyObject* value;
    Py_ssize_t references;  ///< to the value, by those that call this and the place it stands in
    /// Numbers in it that follow from nothing are constants, compared between probes as texts are.
    bool has_constants = false;
  };
  /// Takes a value apart into `flat`, after those before. What was met before is that object again.
  void add(Roots& roots, const Part& part, pack::Results& flat, const OnNumber& on_number);
  /// Until `settle` a module, an optimizer, a function with defaults or cells, or a method of an
  /// object is opaque unless this says that it, or the object, was there before: another call makes
  /// another one. A method in C of anything but a module or an optimizer is opaque in any case. A
  /// container or a plain object that was there before stays that one.
  void ask_whether_known(std::function<bool(PyObject*)> is_known) {
    is_known_ = std::move(is_known);
  }

  /// Until `settle` a dict in which something stands under a key that this says the call was given
  /// is opaque: another call is given another one.
  void ask_which_keys_are_given(std::function<bool(PyObject*)> is_given) {
    is_given_key_ = std::move(is_given);
  }

  /// Containers that the call is given, among its arguments and in places that count as such: where
  /// one of them is left, a replay leaves that which it is given in its place. Until `settle`.
  void ask_where_given(const std::vector<PyObject*>& containers) {
    for (std::size_t i = 0; i < containers.size(); ++i) given_.try_emplace(containers[i], i);
  }

  /// The same of a call that is compared with a plan of `other`, with what stays an object there.
  void ask_as(const Structure& other, const std::vector<PyObject*>& containers) {
    ask_where_given(containers);
    is_known_ = [&other](PyObject* object) {
      return other.has_any([object](const Node& node) {
        return node.kind == Kind::kKept && node.object.get() == object;
      });
    };
  }

  /// All have been added: a container that something else holds as well, beside the engine, cannot
  /// be made again.
  void settle(const std::function<bool(PyObject*)>& is_held_here);

  /// Puts all together; takes the tensors and numbers in their order. `given`: the containers that
  /// the call is given, as ask_where_given had those of the recorded one.
  std::vector<py::object> build(const pack::Results& flat, std::span<PyObject* const> given) const;
  /// Adds to `flat` what another call left as part `k`: its tensors and numbers in the same order,
  /// undefined and NaN where it is made another way.
  void flatten(std::size_t k, PyObject* value, pack::Results& flat) const {
    flatten(parts_[k].root, value, flat);
  }
  std::size_t size() const { return parts_.size(); }
  /// Whether a container or an object that was there before stays that one.
  bool keeps_objects() const {
    return has_any([](const Node& node) { return node.kind == Kind::kKept; });
  }
  /// Whether part `k` is or holds one that the call was given, or that was there before.
  bool leaves_found(std::size_t k) const {
    return has_any(parts_[k].root, [](const Node& node) {
      return node.kind == Kind::kGiven || node.kind == Kind::kKept;
    });
  }
  /// Structure and constants in words, to be compared between two probes.
  const std::string& text(std::size_t k) const { return parts_[k].text; }
  /// The type of something in it that cannot be made again, or empty.
  const std::string& opaque(std::size_t k) const { return parts_[k].opaque; }
  /// Whether a tensor in it is of a class made of torch.Tensor.
  bool has_subclass(std::size_t k) const { return parts_[k].has_subclass; }

 private:
  enum class Kind {
    kTensor,
    kArray,
    kNumber,
    kConstant,
    kTuple,
    kNamedTuple,
    kList,
    kDict,
    kObject,
    kDeadReference,
    kSame,
    kGiven,
    kKept
  };
  struct Node {
    Kind kind = Kind::kConstant;
    bool is_inference = false;  ///< of a tensor: made under inference mode
    Root object;  ///< the constant, what is kept, or the class of a container, a float or a tensor
    std::vector<Root> keys;
    Root factory;  ///< of a defaultdict, or none
    std::vector<Root>
        attributes;  ///< of a dict: each is the item of that name, or None without one
    std::vector<Node> items;
    bool is_shared = false;  ///< a container, to which a later node may lead
    std::size_t same = 0;    ///< of kSame: as which of the shared ones; of kGiven: which of these
  };
  struct Next {
    std::span<PyObject* const> given;
    std::size_t tensor = 0, number = 0;
    std::vector<py::object> shared = {};
  };
  /// Something that is held by identity: a list, a dict, an object, or a tuple of tensors.
  struct Container {
    std::size_t position;  ///< among the shared ones, in the order in which they are complete
    std::size_t part;
    std::string type;
    Py_ssize_t held_elsewhere;  ///< how often, beside the first place where it was met
    bool is_fixed = false;      ///< a tuple in which nothing can change: another one does as well
  };

  struct Taken {
    Node root;
    std::string text, opaque;
    bool has_subclass = false;
  };
  struct Taking {
    Roots& roots;
    Taken& part;
    bool has_constants;
    pack::Results& flat;
    const OnNumber& on_number;
  };
  /// Whether nothing in it can change.
  static bool holds_nothing_mutable(const Node& node);
  Node take(const Taking& into, PyObject* value, Py_ssize_t references, int depth);
  void take_items(const Taking& into, PyObject* sequence, Node& node, int depth);
  void take_dict(const Taking& into, PyObject* dict, Node& node, int depth);
  static void flatten(const Node& node, PyObject* value, pack::Results& flat);
  template <typename Test>
  static bool has_any(const Node& node, const Test& test) {
    return test(node) || std::ranges::any_of(
                             node.items, [&test](const Node& item) { return has_any(item, test); });
  }
  template <typename Test>
  bool has_any(const Test& test) const {
    return std::ranges::any_of(parts_,
                               [&test](const Taken& part) { return has_any(part.root, test); });
  }
  py::object build(const Node& node, const pack::Results& flat, Next& next) const;
  py::object build_container(const Node& node, const pack::Results& flat, Next& next) const;
  static py::object build_dict(const Node& node, const py::list& items);

  std::vector<Taken> parts_;
  std::function<bool(PyObject*)> is_known_;  ///< null: nobody asks
  std::function<bool(PyObject*)> is_given_key_;
  std::map<PyObject*, Container> containers_;  ///< that were met, and live as long as this grows
  std::size_t complete_ = 0;                   ///< of these
  std::unordered_map<PyObject*, std::size_t> given_;
};

}  // namespace steptape::python
