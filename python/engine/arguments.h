#pragma once

#include <deque>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/roots.h"
#include "steptape/pack.h"

namespace steptape::python {

/// The arguments of one call as flat leaves: tensors and numbers one each, and as the last one
/// their structure, with what a plan must find again as it was (None, strings, other objects).
struct Arguments {
  std::vector<pack::Leaf> leaves;
  /// What it is made of beside its tensors and numbers.
  const std::string& structure() const { return std::get<std::string>(leaves.back()); }
  /// What the text of a structure begins with.
  static constexpr char kStructure[] = "~";
  /// Plain floats and ints, and where they stand: the item of a tuple or list, or the entry of a
  /// dict.
  struct Number {
    std::size_t leaf;
    PyObject* holder;  ///< borrowed from the call
    py::object key;
  };
  std::vector<Number> numbers;  ///< where names are asked for
  /// Arrays of NumPy, which count as tensors over their memory.
  struct Array {
    std::size_t leaf;
    PyObject* array;  ///< borrowed from the call
    at::Tensor tensor;
  };
  std::vector<Array> arrays;
  std::vector<PyObject*> objects;  ///< those known by their identity, borrowed from the call
  /// Lists, dicts and objects that are compared by what they hold, as they were met; borrowed.
  std::vector<PyObject*> containers;
  std::vector<std::string> names_of_containers;  ///< where names are asked for
  bool has_subclass = false;                     ///< of torch.Tensor, whose own code no op shows
  std::string opaque;  ///< the type of an argument whose content nobody can guard, or empty
  /// Objects of such types, or the outermost ones with attributes that they stand in, borrowed,
  /// with their names where these are asked for; all that is opaque, unless `holds_opaque`.
  std::vector<std::pair<PyObject*, std::string>> unguarded;
  bool holds_opaque = false;
  /// What UnreadArguments is about.
  struct Single {
    PyObject* object;  ///< borrowed
    bool is_value;     ///< not an object that no guard can compare
    std::string name;  ///< where names are asked for
    friend bool operator==(const Single&, const Single&) = default;
  };
  std::vector<Single> singles;
  /// Of each leaf, what the program calls it: "batch['x']"; where they are asked for.
  std::vector<std::string> names;
  std::string opaque_name;  ///< of `opaque`, too
};

enum class Order {
  kAny,    ///< of keywords means nothing to the function: it is made the same for all calls
  kGiven,  ///< it takes them as a dict
};

/// Lists, dicts and objects that a step is given and has changed, and those whose content no guard
/// of arguments can compare. Each counts as one of the program's, which the step reads and writes
/// like any other, and a call is known by which it is.
class ChangedArguments {
 public:
  /// One more. Gives the oldest one where that is dropped for it: a new one in each epoch takes the
  /// place of another.
  py::object add(Roots& roots, PyObject* object, const std::string& name);
  bool is_empty() const { return all_.empty(); }
  /// What the program calls it; null for an object that is none of them.
  const std::string* find(PyObject* object) const {
    const auto found = all_.find(object);
    return found == all_.end() ? nullptr : &found->second.name;
  }

 private:
  static constexpr std::size_t kMost = 8;
  struct Changed {
    Root object;  ///< so that no other gets its address
    std::string name;
  };
  std::unordered_map<PyObject*, Changed> all_;
  std::deque<PyObject*> order_;
};

/// Texts, bytes, scalars of NumPy, and objects that no guard can compare, among the arguments. A
/// call is compared by texts and the like until one that no recorded call has looked at is another
/// one: then each plan is, by those that its own call has looked at (`values`). It is compared by
/// an object once some call has looked at it.
class UnreadArguments {
 public:
  bool is_compared(std::size_t position, bool is_value) const {
    return is_value ? !leaves_out_values_ : read_.contains(position);
  }
  /// Texts and the like of the call that is under way, by their positions, where it is not compared
  /// by them: what plans are guarded by.
  const py::dict& values() const { return values_; }
  py::dict copy_of_values() const {
    return py::reinterpret_steal<py::dict>(PyDict_Copy(values_.ptr()));
  }
  /// A call goes on that had been given these.
  void take(const py::dict& values);
  /// A call begins that is given these.
  void begin(const std::vector<Arguments::Single>& given);
  /// Calls `visit(position, name)` for those of a recorded call that it has looked at.
  template <typename Visit>
  void for_each_read(const std::vector<Arguments::Single>& given,
                     const std::function<bool(PyObject*)>& was_read, Visit&& visit) const {
    for (std::size_t i = 0; leaves_out_values_ && i < given.size(); ++i) {
      if (given[i].is_value && was_read(given[i].object)) visit(i, given[i].name);
    }
  }
  /// A recorded call was given these, and has looked at some. False: it says nothing of others, as
  /// calls are compared in another way from here on.
  bool settle(const std::vector<Arguments::Single>& given,
              const std::function<bool(PyObject*)>& was_read);

 private:
  bool leaves_out_values_ = false;
  std::set<std::size_t> read_;  ///< objects
  py::dict values_;
  std::vector<py::object> newest_;  ///< of the values; null for others
};

/// Whether tensors are made over arrays, which is an op; else they are known by their identity, and
/// what comes is for `same` alone.
enum class Arrays { kAsTensors, kByIdentity };

struct Flatten {
  Arrays arrays = Arrays::kAsTensors;
  /// Of positional arguments, or of values, where names are wanted.
  const std::vector<std::string>* names = nullptr;
  bool has_offsets = false;  ///< where in its memory each tensor lies is part of the structure
  const ChangedArguments* changed = nullptr;
  const UnreadArguments* unread = nullptr;  ///< null: all are compared
};
Arguments flatten(PyObject* positional, PyObject* keywords, Order order, const Flatten& how);
/// The same of values that count as arguments one after the other; null for one that is missing.
Arguments flatten(std::span<const py::object> values, const Flatten& how = {});
/// The same of what stands in one place, by name; null for nothing. Arrays are known by identity.
Arguments flatten(const py::object& held, const std::string& name);
/// Whether a value can count as an argument: it holds tensors, none of them a leaf that requires
/// grad, or, where it has come in the place of another one (`is_new`), is a list, tuple or dict of
/// anything, though not of too many; and nothing that no guard could look at.
bool may_be_argument(PyObject* value, bool is_new = false);

/// Whether two looks at the arguments of one call, with a run of the step between them, saw the
/// same objects, numbers and structure.
bool same(const Arguments& before, const Arguments& after);

}  // namespace steptape::python
