#include "python/engine/foreign.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "live/tensors.h"
#include "trace/numbers.h"
#include "trace/path.h"

namespace steptape::python {
namespace {

std::string component_of(PyObject* key) {
  return trace::path_component(PyUnicode_Check(key) ? text_of(key) : shown(key));
}

PyObject* dict_entry(PyObject* object, const char* name) {
  PyObject* dict = dict_of(object);
  PyObject* entry = dict == nullptr ? nullptr : PyDict_GetItemString(dict, name);
  return entry != nullptr && PyDict_Check(entry) ? entry : nullptr;
}

/// But for those in places that count as arguments.
std::vector<std::pair<std::string, at::Tensor>> tensors_in(PyObject* dict,
                                                           const MovingPlaces& moving) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto [key, value] : Entries(dict)) {
    if (is_tensor(value) && !moving.is_argument(dict, key))
      tensors.emplace_back(component_of(key), tensor_of(value));
  }
  return tensors;
}

std::vector<std::string> transient_buffers(PyObject* module) {
  std::vector<std::string> names;
  PyObject* dict = dict_of(module);
  PyObject* set =
      dict == nullptr ? nullptr : PyDict_GetItemString(dict, "_non_persistent_buffers_set");
  if (set == nullptr || !PyAnySet_Check(set)) return names;
  for (const py::handle name : py::reinterpret_borrow<py::set>(set)) {
    names.push_back(component_of(name.ptr()));
  }
  return names;
}

/// "a tensor of float32 [2, 3]": its elements are state, which the step reads like any other.
std::string words_of(const at::Tensor& tensor) {
  return c10::str("a tensor of ", name_of(live::dtype_of(tensor.scalar_type())), " ",
                  tensor.sizes());
}

trace::Value value_of(PyObject* object) {
  if (object == Py_None) return {trace::None{}};
  if (PyBool_Check(object)) return {object == Py_True};
  if (is_float(object)) return {trace::Real{PyFloat_AS_DOUBLE(object)}};
  if (PyLong_CheckExact(object)) {
    if (const auto value = int64_of(object)) return {*value};
  }
  if (PyUnicode_Check(object)) return {text_of(object)};
  if (is_tensor(object)) return {words_of(tensor_of(object))};
  if (PyTuple_CheckExact(object)) {
    trace::List list;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      list.push_back(value_of(PyTuple_GET_ITEM(object, i)));
    }
    return {std::move(list)};
  }
  return {type_name(object)};
}

/// As many as live::Snapshot keeps.
constexpr std::size_t kMostAliases = 16;

/// A watch over what was captured, which is let go of under the GIL.
template <typename Kept>
class WatchOf : public live::ForeignWatch {
 public:
  explicit WatchOf(std::shared_ptr<const Kept> kept) : kept_(std::move(kept)) {}
  ~WatchOf() override {
    const py::gil_scoped_acquire gil;
    kept_.reset();
  }
  Verdict check() override { return kept_->check(); }

 protected:
  std::shared_ptr<const Kept> kept_;
};

/// Of containers in containers that are looked into for tensors.
constexpr int kDepth = 3;

/// What of a value a place stands for: lists and dicts have places of their own, unless all of it
/// was read at once.
enum class Reach { kValue, kItems, kAll };

/// A list or tuple of the items that a value is looked into for; null for another object.
py::object items_of(PyObject* value, Reach reach) {
  if (PyTuple_Check(value)) return borrowed(value);
  if (reach == Reach::kValue && !PyFrozenSet_Check(value)) return {};
  if (PyList_CheckExact(value)) return borrowed(value);
  if (PyAnySet_Check(value) || is_deque(value)) return list_of(value);
  if (!is_array_of_numpy(value) || !holds_objects(value)) return {};
  return borrowed(value).attr("ravel")().attr("tolist")();
}

/// Tensors that a place stands for, but for those in places that count as arguments.
void collect(PyObject* value, const std::string& path, int depth, Reach reach,
             const MovingPlaces& moving, live::ForeignModule& found) {
  if (value == nullptr) return;
  if (is_tensor(value)) {
    const at::Tensor& tensor = tensor_of(value);
    const bool is_parameter = tensor.requires_grad() && tensor.is_leaf();
    (is_parameter ? found.parameters : found.buffers).emplace_back(path, tensor);
    return;
  }
  if (depth == 0) return;
  if (PyMethod_Check(value))
    return collect(PyMethod_GET_SELF(value), path + ".__self__", depth - 1, reach, moving, found);
  const Reach below = reach == Reach::kAll ? Reach::kAll : Reach::kValue;
  if (const py::object items = items_of(value, reach)) {
    const bool may_move = !moving.is_empty() && !PyTuple_Check(value);
    const auto size = std::min(PySequence_Fast_GET_SIZE(items.ptr()), Plain::kMostItems);
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (may_move && moving.is_argument(value, py::int_(i).ptr())) continue;
      collect(PySequence_Fast_GET_ITEM(items.ptr(), i), path + "[" + std::to_string(i) + "]",
              depth - 1, below, moving, found);
    }
  } else if (reach != Reach::kValue && PyDict_Check(value) && PyDict_Size(value) <= 1000) {
    const bool is_of_optimizer = moving.is_of_optimizer(value);  // which has the tensors in it
    PyObject* key = nullptr;
    PyObject* item = nullptr;
    std::size_t position = 0;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item) != 0; ++position) {
      collect(key, path + ".keys[" + std::to_string(position) + "]", depth - 1, Reach::kValue,
              moving, found);
      if (moving.is_argument(value, key) || (is_of_optimizer && is_tensor(item))) continue;
      collect(item, path + "[" + shown(key) + "]", depth - 1, below, moving, found);
    }
  }
}

void collect(const Slot& slot, const MovingPlaces& moving, live::ForeignModule& found) {
  if (slot.is_assignable() && moving.is_argument(slot.owner.get(), slot.key.get())) return;
  const bool is_whole = slot.kind == Slot::Kind::kWhole || slot.kind == Slot::Kind::kState;
  // defaults of a function stand in a tuple or a dict, keys in a list
  const bool is_of_items = slot.kind == Slot::Kind::kContent ||
                           slot.kind == Slot::Kind::kFunction || slot.kind == Slot::Kind::kKeys;
  if (!slot.is_guarded || !(slot.holds_value() || is_whole || is_of_items)) return;
  const Reach reach = is_whole ? Reach::kAll : is_of_items ? Reach::kItems : Reach::kValue;
  const py::object value = slot.value();
  if (value && is_tensor(value.ptr()) && moving.is_of_optimizer(slot.owner.get())) return;
  collect(value.ptr(), slot.path, kDepth, reach, moving, found);
}

}  // namespace

struct Modules::Captured {
  Captured(Roots& roots, MovingPlaces& moving, TypeWatches::Kept& kept, const std::vector<At>& tree)
      : types(roots, kept) {
    modules.reserve(tree.size());
    for (const At& at : tree) {
      modules.emplace_back(roots, moving, types, at.path.empty() ? "" : "." + at.path, at.module);
    }
  }
  Verdict check() const {
    const bool types_same = types.same();
    for (const ModuleWatch& module : modules) {
      if (Verdict verdict = module.check(types_same); !verdict) return verdict;
    }
    return {};
  }

  TypeWatches types;
  std::vector<ModuleWatch> modules;
};

Modules::Modules(Roots& roots, MovingPlaces& moving, PyObject* root)
    : roots_(roots), moving_(moving), root_(root), weak_(Root::weak(roots, root)) {}

bool Modules::is_alive() const { return weak_.get() != nullptr; }

std::vector<Modules::At> Modules::tree() const {
  std::vector<At> tree;
  std::unordered_map<PyObject*, std::size_t> seen;
  const auto add = [&](const auto& self, const std::string& path, PyObject* module) -> void {
    const auto [entry, is_new] = seen.emplace(module, tree.size());
    if (is_new) {
      tree.push_back({path, module, {}});
    } else {
      auto& aliases = tree[entry->second].aliases;
      if (aliases.size() == kMostAliases) return;
      aliases.push_back(path);
    }
    PyObject* children = dict_entry(module, "_modules");
    for (const auto [key, child] : Entries(children)) {
      if (child == Py_None) continue;
      self(self, trace::join_path(path, text_of(key)), child);
    }
  };
  add(add, "", root_);
  return tree;
}

std::vector<live::ForeignModule> Modules::modules() const {
  std::vector<live::ForeignModule> modules;
  for (const At& at : tree()) {
    PyObject* dict = dict_of(at.module);
    PyObject* training = dict == nullptr ? nullptr : PyDict_GetItemString(dict, "training");
    modules.push_back({at.path, type_name(at.module), training == Py_True,
                       tensors_in(dict_entry(at.module, "_parameters"), moving_),
                       tensors_in(dict_entry(at.module, "_buffers"), moving_), at.aliases,
                       transient_buffers(at.module)});
  }
  return modules;
}

void Modules::capture() {
  if (captured_ != nullptr) {
    for (const ModuleWatch& module : captured_->modules) module.note_moving();
  }
  captured_ = std::make_shared<Captured>(roots_, moving_, types_, tree());
}

void Modules::compare_only(const Reads& reads) {
  if (captured_ == nullptr) return;
  for (ModuleWatch& module : captured_->modules) {
    module.compare_only(reads(module.module()));
  }
}

std::unique_ptr<live::ForeignWatch> Modules::watch(const live::PathOf&) const {
  auto captured = captured_ != nullptr
                      ? captured_
                      : std::make_shared<Captured>(roots_, moving_, types_, tree());
  for (ModuleWatch& module : captured->modules) module.let_go();
  return std::make_unique<WatchOf<Captured>>(std::move(captured));
}

std::vector<HostChange> Modules::changes(const std::string& name) const {
  std::vector<HostChange> changes;
  if (captured_ == nullptr) return changes;
  for (const ModuleWatch& module : captured_->modules) {
    for (HostChange& made : module.changes()) {
      made.path = name + module.path() + "." + trace::path_component(made.path) + made.change.path;
      changes.push_back(std::move(made));
    }
  }
  return changes;
}

struct Optimizer::Captured {
  Captured(Roots& roots, MovingPlaces& moving, TypeWatches::Kept& kept, PyObject* optimizer,
           bool is_idle)
      : types(roots, kept), watch(roots, moving, types, optimizer, is_idle) {}
  Verdict check() const { return watch.check(); }

  TypeWatches types;
  OptimizerWatch watch;

  class Guard;
};

/// Its numbers too.
class Optimizer::Captured::Guard final : public WatchOf<Captured> {
 public:
  using WatchOf::WatchOf;
  std::vector<std::string> names() const override { return kept_->watch.names(); }
  std::size_t read(std::span<double> values) override { return kept_->watch.read(values); }
  void advance(std::size_t k, std::int64_t by) override { kept_->watch.advance(k, by); }
};

Optimizer::Optimizer(Roots& roots, MovingPlaces& moving, OptimizerUse& use, PyObject* optimizer)
    : roots_(roots),
      moving_(moving),
      optimizer_(optimizer),
      type_(type_name(optimizer)),
      use_(use),
      weak_(Root::weak(roots, optimizer)) {}

bool Optimizer::is_alive() const { return weak_.get() != nullptr; }

std::string Optimizer::type() const { return type_; }

std::vector<live::ForeignOptimizer::Group> Optimizer::groups() const {
  std::vector<Group> groups;
  PyObject* list = groups_of(optimizer_);
  for (Py_ssize_t g = 0; list != nullptr && g < PyList_GET_SIZE(list); ++g) {
    Group& group = groups.emplace_back();
    PyObject* dict = PyList_GET_ITEM(list, g);
    if (!PyDict_Check(dict)) continue;
    for (const auto [key, value] : Entries(dict)) {
      const std::string name = component_of(key);
      if (name == "params" && PyList_Check(value)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
          PyObject* parameter = PyList_GET_ITEM(value, i);
          if (is_tensor(parameter)) group.parameters.push_back(tensor_of(parameter));
        }
        continue;
      }
      const bool is_place = !PyUnicode_Check(key) && is_plain_number(value);  // see OptimizerWatch
      if (is_place || moving_.is_argument(dict, key)) continue;
      if (is_tensor(value)) group.tensors.emplace_back(name, tensor_of(value));
      group.hyperparameters.push_back({name, value_of(value)});
    }
  }
  return groups;
}

template <typename Visit>
void Optimizer::for_each_state(Visit&& visit) const {
  PyObject* all = use_.is_idle ? nullptr : state_of(optimizer_);
  for (const auto [owner, items] : Entries(all)) {
    if (PyDict_Check(items)) visit(owner, items);
  }
}

std::vector<live::ForeignOptimizer::State> Optimizer::state() const {
  std::vector<State> states;
  for_each_state([&](PyObject* parameter, PyObject* items) {
    const at::Tensor owner = is_tensor(parameter) ? tensor_of(parameter) : at::Tensor();
    for (const auto [key, value] : Entries(items)) {
      if (moving_.is_argument(items, key)) continue;
      if (is_tensor(value)) {
        states.push_back({owner, component_of(key), tensor_of(value)});
      } else {
        states.push_back({owner, component_of(key), value_of(value)});
      }
    }
  });
  return states;
}

void Optimizer::set_number(const at::Tensor& parameter, const std::string& key,
                           const trace::Value& value) const {
  const auto* integer = std::get_if<std::int64_t>(&value.data);
  for_each_state([&](PyObject* owner, PyObject* items) {
    if (!is_tensor(owner) || !tensor_of(owner).is_same(parameter)) return;
    for (const auto [name, found] : Entries(items)) {
      if (!PyUnicode_Check(name) || !is_plain_number(found)) continue;
      if (component_of(name) != key) continue;
      const py::object number =
          integer != nullptr ? py::object(py::int_(*integer))
                             : float_of_class(is_float(found) ? Py_TYPE(found) : &PyFloat_Type,
                                              trace::number_of(value));
      if (PyDict_SetItem(items, name, number.ptr()) != 0) throw py::error_already_set();
      return;
    }
  });
}

py::list Optimizer::numbers(const std::string& name, const live::PathOf& path_of) const {
  py::list numbers;
  for_each_state([&](PyObject* owner, PyObject* items) {
    if (!is_tensor(owner)) return;
    for (const auto [key, value] : Entries(items)) {
      if (!PyUnicode_Check(key) || !is_plain_number(value)) continue;
      const std::string state = trace::state_path(name, path_of(tensor_of(owner)));
      numbers.append(
          py::make_tuple(borrowed(items), borrowed(key), state + "." + component_of(key)));
    }
  });
  return numbers;
}

std::optional<Py_ssize_t> Optimizer::group_of(PyObject* dict) const {
  PyObject* groups = groups_of(optimizer_);
  for (Py_ssize_t g = 0; groups != nullptr && g < PyList_GET_SIZE(groups); ++g) {
    if (PyList_GET_ITEM(groups, g) == dict) return g;
  }
  return std::nullopt;
}

bool Optimizer::holds(PyObject* dict) const {
  bool found = group_of(dict).has_value();
  for_each_state([&](PyObject*, PyObject* items) { found |= items == dict; });
  return found;
}

void Optimizer::capture() {
  if (captured_ != nullptr) captured_->watch.note_moving();
  const bool has_changed = captured_ != nullptr && !captured_->watch.has_same_state();
  if (has_changed && !use_.is_stepped && !use_.is_idle) use_.is_idle = use_.has_news = true;
  captured_ = std::make_shared<Captured>(roots_, moving_, types_, optimizer_, use_.is_idle);
}

void Optimizer::note_step() {
  use_.is_stepped = true;
  use_.has_news |= use_.is_idle;
  use_.is_idle = false;
}

std::unique_ptr<live::ForeignWatch> Optimizer::watch(const live::PathOf& path_of) const {
  auto captured = captured_ != nullptr ? captured_
                                       : std::make_shared<Captured>(roots_, moving_, types_,
                                                                    optimizer_, use_.is_idle);
  captured->watch.name(path_of);
  captured->watch.let_go();
  return std::make_unique<Captured::Guard>(std::move(captured));
}

std::vector<HostChange> Optimizer::changes(const std::string& name) const {
  if (captured_ == nullptr) return {};
  std::vector<HostChange> changes = captured_->watch.changes();
  for (HostChange& made : changes) made.path = name + made.path + made.change.path;
  return changes;
}

namespace {

bool is_same_place(const Slot& a, const Slot& b) {
  return a.kind == b.kind && a.owner.get() == b.owner.get() &&
         is_same_key(a.key.get(), b.key.get());
}

}  // namespace

bool HostState::is_tracked(const Slot& slot) const {
  return std::ranges::any_of(tensors_,
                             [&slot](const Slot& known) { return is_same_place(known, slot); });
}

void HostState::guard(const std::string& path, PyObject* dict, PyObject* key) {
  if (captured_ == nullptr) return;
  captured_->add({Slot::Kind::kEntry, path, Root::guarding(roots_, dict), Root(roots_, key)},
                 borrowed(find_entry(dict, key)));
}

bool HostState::take(std::shared_ptr<SlotWatch> seen) {
  captured_ = std::move(seen);
  bool is_new = false;
  for (const Slot& slot : captured_->slots()) {
    live::ForeignModule found;
    collect(slot, moving_, found);
    if ((found.parameters.empty() && found.buffers.empty()) || is_tracked(slot)) continue;
    is_new = true;
    // what stood there before was reached by another object of that name, unless both were seen
    std::erase_if(tensors_, [&](const Slot& known) {
      return known.path == slot.path && known.kind == slot.kind &&
             std::ranges::none_of(captured_->slots(), [&known](const Slot& seen) {
               return is_same_place(known, seen);
             });
    });
    tensors_.push_back({slot.kind, slot.path, Root::guarding(roots_, slot.owner.get()),
                        Root(roots_, slot.key.get())});
  }
  return is_new;
}

void HostState::capture() {
  if (captured_ != nullptr) captured_->note_moving();
  captured_.reset();
}

std::vector<live::ForeignModule> HostState::modules() const {
  live::ForeignModule found{"", "the host", true, {}, {}};
  for (const Slot& slot : tensors_) collect(slot, moving_, found);
  // an item that was read by itself and with its container, and two places of one name
  std::unordered_map<std::string, at::Tensor> seen;
  for (auto* tensors : {&found.parameters, &found.buffers}) {
    std::erase_if(*tensors, [&seen](auto& at) {
      const std::string path = at.first;
      for (int n = 2; !seen.emplace(at.first, at.second).second; ++n) {
        if (seen.at(at.first).is_same(at.second)) return true;
        at.first = path + "_" + std::to_string(n);
      }
      return false;
    });
  }
  return {std::move(found)};
}

std::unique_ptr<live::ForeignWatch> HostState::watch(const live::PathOf&) const {
  return std::make_unique<WatchOf<SlotWatch>>(
      captured_ != nullptr ? captured_ : std::make_shared<SlotWatch>(roots_, moving_));
}

std::vector<HostChange> HostState::changes(const std::string& name) const {
  std::vector<HostChange> changes;
  if (captured_ == nullptr) return changes;
  for (auto& [slot, change, moves, appended, before] : captured_->changes()) {
    HostChange made{name + "." + slot->path + change.path,
                    {},
                    {},
                    change,
                    moves,
                    before,
                    slot->place,
                    appended};
    const bool is_inside =
        slot->kind == Slot::Kind::kContent && py::len(change.keys) > 0 && !appended;
    if (slot->is_assignable() || is_inside || appended) {
      made.owner = borrowed(slot->owner.get());
    }
    if (is_inside) {  // the place is an item of the container
      made.key = change.keys[0];
      made.change.keys = py::list(change.keys[py::slice(1, py::len(change.keys), 1)]);
    } else if (slot->is_assignable() && slot->key.get() != nullptr) {
      made.key = borrowed(slot->key.get());
    }
    changes.push_back(std::move(made));
  }
  return changes;
}

}  // namespace steptape::python
