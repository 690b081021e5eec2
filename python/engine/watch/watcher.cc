#include "python/engine/watch/watcher.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <string_view>

#include "python/engine/python.h"
#include "python/engine/structure.h"
#include "trace/path.h"

namespace steptape::python::watch {
namespace {

/// Whether a function imports as the statement does, or asks whether a module could be imported.
bool imports(PyObject* function) {
  static PyObject* const of_modules[] = {imported("importlib", "import_module"),
                                         imported("builtins", "__import__"),
                                         imported("importlib.util", "find_spec")};
  return std::ranges::find(of_modules, function) != std::end(of_modules);
}

/// Whether torch hands on what this code gives as the result of the function that a mode was asked
/// for.
bool gives_to_torch(PyCodeObject* code) {
  static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
  return code->co_name == name;  // names of code are interned
}

/// Whether it is what the methods of loggers call once a message is of a level that is shown.
bool logs(PyObject* function) {
  static PyObject* const known = PyObject_GetAttrString(imported("logging", "Logger"), "_log");
  return known == (PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function);
}

/// Whether it tells which packages are installed: as a search for a module, of which replays take
/// what was found (docs/blind_spots.md).
bool tells_packages(PyObject* function) {
  static PyObject* const known =
      PyModule_GetDict(module_named("importlib.metadata").release().ptr());
  return PyFunction_Check(function) && PyFunction_GET_GLOBALS(function) == known;
}

/// Whether `function`, which `code` calls, shows a warning or puts it into the list of
/// `catch_warnings(record=True)`, which no replay does (docs/blind_spots.md).
bool shows_warning(PyObject* function, PyCodeObject* code) {
  static PyObject* const shows = imported("warnings", "_showwarnmsg_impl");
  static PyObject* const asks = PyFunction_GET_CODE(imported("warnings", "_showwarnmsg"));
  return function == shows ||
         (PyCFunction_Check(function) && reinterpret_cast<PyObject*>(code) == asks);
}

bool is_host_value(PyObject* object) {
  return std::string_view(Py_TYPE(object)->tp_name) == "Host" &&
         type_name(object) == "steptape._host.Host";
}

/// Where `from value import *` finds names, of a module or what stands for one; null of what can be
/// gone over.
PyObject* names_to_import(PyObject* value) {
  if (PyModule_Check(value)) return PyModule_GetDict(value);
  return Py_TYPE(value)->tp_iter == nullptr ? dict_of(value) : nullptr;
}

}  // namespace

bool HandedObjects::was_there(PyObject* object) {
  const auto [entry, is_new] = objects_.try_emplace(object);
  if (is_new) entry->second.object = Root::pinned(roots_, object);
  return !entry->second.is_new;
}

void HandedObjects::end_call() {
  const auto is_ours_alone = [](const auto& entry) {
    return entry.second.object.get() == nullptr || Py_REFCNT(entry.first) == 1;
  };
  // one may have held another
  while (std::erase_if(objects_, is_ours_alone) != 0) {
  }
  for (auto& [object, handed] : objects_) handed.is_new = false;
}

Watcher::Watcher(Roots& roots, MovingPlaces& moving, const ChangedArguments& changed,
                 HandedObjects& handed)
    : roots_(roots),
      moving_(moving),
      changed_(changed),
      handed_(handed),
      slots_(std::make_unique<SlotWatch>(roots, moving)),
      handled_(handled_exception().ptr()) {
  for (const py::object& value : moving.left()) {  // as the call found them
    if (value) give(value.ptr());
  }
  lend_windows();
}

std::size_t Watcher::Hash::operator()(const Id& id) const noexcept {
  auto mixed = reinterpret_cast<std::uintptr_t>(id.owner) * 0x9E3779B97F4A7C15ULL;
  mixed ^=
      static_cast<std::uintptr_t>(id.value) + (mixed >> 29U) * 31 + static_cast<unsigned>(id.kind);
  return mixed * 0xBF58476D1CE4E5B9ULL;
}

const Watcher::Code& Watcher::known(PyCodeObject* code) {
  if (code == newest_code_.first) return *newest_code_.second;
  const auto [entry, is_new] = codes_.try_emplace(code);
  if (is_new) {
    held_.push_back(borrowed(reinterpret_cast<PyObject*>(code)));
    entry->second = code_in(view_of(code->co_filename));
  }
  newest_code_ = {code, &entry->second};
  return entry->second;
}

Watcher::Code Watcher::code_in(std::string_view file) {
  const auto holds = [&file](const std::string& folder) { return file.starts_with(folder); };
  const bool is_package = file.find("/site-packages/") != file.npos;
  Code made;
  // an integration's code (lightning.py) is a part of the step, as the framework's is
  if (holds(folders().own) && file.substr(folders().own.size()).starts_with('_')) {
    made.whose = Whose::kSteptapes;
  } else if (holds(folders().torchs)) {
    made.whose = Whose::kTorchs;
    made.is_of_operators = file.substr(folders().torchs.size()) == "_ops.py";
  } else if (file.starts_with("<frozen ") ||
             (!is_package && std::ranges::any_of(folders().shared, holds))) {
    made.whose = Whose::kPythons;
  }
  return made;
}

bool Watcher::wants(PyCodeObject* code, bool by_watched) {
  if (unwatched_ != 0) return false;
  const Whose owner = whose(code);
  if (owner == Whose::kSteptapes) return false;
  return owner != Whose::kPythons || by_watched || is_for_numbers_ ||
         reinterpret_cast<PyObject*>(code) == outermost_;
}

void Watcher::mark(PyObject* value, const std::string& path) {
  if (value == nullptr || is_atom(value)) return;
  if (is_tensor(value) && !(has_hooks(value) && hooked_.insert(value).second)) return;
  // what it holds is marked in the outermost call: tuples may be nested without end
  to_mark_.emplace_back(value, path);
  if (to_mark_.size() > 1) return;
  auto at_end = c10::make_scope_exit([this] { to_mark_.clear(); });
  std::vector<PyObject*> hooked;
  for (std::size_t i = 0; i < to_mark_.size(); ++i) {
    const auto next = to_mark_[i];
    is_tensor(next.first) ? hooked.push_back(next.first) : mark_one(next.first, next.second);
  }
  at_end.release();
  to_mark_.clear();
  std::ranges::for_each(hooked, [this](PyObject* tensor) { load_hooks_of_tensor(tensor); });
}

void Watcher::mark_one(PyObject* value, const std::string& path) {
  take_back(value);
  if (fresh_.contains(value)) return;
  if (is_part_of_model(value) || is_generator(value) || is_host_value(value)) {
    add_object(value, path);
  }
  const auto [entry, is_new] = existing_.emplace(value, path);
  if (!is_new) return;
  held_.push_back(borrowed(value));
  if (PyTuple_Check(value)) mark_items(value);  // nothing of it can be written
  if (PyCFunction_Check(value) && PyCFunction_GET_SELF(value) != nullptr) {
    mark(PyCFunction_GET_SELF(value), path + ".__self__");
  }
  if (std::string_view(Py_TYPE(value)->tp_name) == "method-wrapper")
    mark(member(value, "__self__").ptr(), path + ".__self__");
  if (Py_TYPE(value) == &PyStaticMethod_Type)  // a __new__, which no instruction loads
    mark(member(value, "__func__").ptr(), path);
  if (PyMethod_Check(value)) {
    mark(PyMethod_GET_SELF(value), PyFunction_Check(PyMethod_GET_FUNCTION(value)) ? "self" : path);
    mark(PyMethod_GET_FUNCTION(value), path);
  }
}

void Watcher::mark_module(PyObject* module, const std::string& path) {
  modules_.try_emplace(module);
  mark(module, path);
}

AttributeReads Watcher::reads_of(PyObject* module) const {
  const auto found = modules_.find(module);
  if (found == modules_.end()) return {.are_all = true};
  const ModuleReads& reads = found->second;
  if (reads.is_whole) return {.are_all = true, .names = reads.put};
  AttributeReads made{.names = reads.asked};
  for (PyObject* name : reads.names) made.names.push_back(borrowed(name));
  return made;
}

void Watcher::ask_for_all(PyObject* module, ModuleReads& reads) {
  if (std::exchange(reads.is_whole, true)) return;
  for (const auto& [name, held] : attributes_of(module)) {
    // torch's code may have asked for it before
    const auto is_it = [name = name](const py::object& other) {
      return is_same_key(name, other.ptr());
    };
    const bool was_asked = reads.names.contains(name) || std::ranges::any_of(reads.asked, is_it);
    if (!was_asked && has_put(module, name)) reads.put.push_back(borrowed(name));
  }
}

void Watcher::ask_module(PyObject* module, PyObject* name) {
  const auto found = modules_.find(module);
  if (found != modules_.end() && !has_put(module, name))
    found->second.asked.push_back(borrowed(name));
}

void Watcher::read_module(PyObject* value) {
  const auto found = modules_.find(value);
  if (found == modules_.end() || found->second.is_whole) return;
  ask_for_all(value, found->second);
  PyObject* dict = dict_of(value);
  PyObject* inner = dict == nullptr ? nullptr : PyDict_GetItemString(dict, "_modules");
  if (inner == nullptr || !PyDict_Check(inner)) return;
  for (const auto& [name, module] : entries_of(inner)) read_module(module);
}

void Watcher::give(PyObject* value, int depth) {
  if (const std::string* name = changed_.find(value)) return mark(value, *name);
  PyObject* const self = bound_to(value);
  if (self != nullptr) given_methods_.insert(value);
  if (const std::string* name = self == nullptr ? nullptr : changed_.find(self))
    return mark(value, name->substr(0, name->rfind('.')));
  if (is_tensor(value) && given_[value]++ == 0) {
    held_.push_back(borrowed(value));
    mark(value, "an argument");
  }
  if (depth == 0 || is_atom(value) || is_tensor(value) || is_fixed(value)) return;
  if (!given_containers_.insert(value).second) return;
  fresh_.insert(value);
  if (PyList_Check(value) || PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
      give(PySequence_Fast_GET_ITEM(value, i), depth - 1);
  }
  PyObject* dict = PyDict_Check(value) ? value : dict_of(value);
  if (dict == nullptr) return;
  fresh_.insert(dict);
  given_containers_.insert(dict);
  for (const auto& [key, item] : entries_of(dict)) give(item, depth - 1);
}

void Watcher::take_back(PyObject* value) {
  std::vector<PyObject*> open{value};  // tuples may be nested without end
  while (!open.empty() && !given_containers_.empty()) {
    PyObject* const next = open.back();
    open.pop_back();
    // who reads a tuple has read what is in it
    if (PyTuple_Check(next)) add_held(next, open);
    if (given_containers_.erase(next) == 0) continue;
    fresh_.erase(next);
    FollowedNumbers::current().let_go(next);
    if (PyObject* dict = dict_of(next)) open.push_back(dict);
  }
}

void Watcher::mark_fixed_in(PyObject* value, const std::string& path) {
  std::vector<PyObject*> open{value};
  std::unordered_set<PyObject*> seen;
  while (!open.empty()) {
    PyObject* const next = open.back();
    open.pop_back();
    if (is_atom(next) || is_tensor(next) || !seen.insert(next).second) continue;
    if (is_fixed(next)) {
      if (!is_part_of_model(next)) mark(next, path);
    } else if (PyTuple_Check(next) || PyList_Check(next) || is_deque(next)) {
      add_held(next, open);
    } else if (PyObject* dict = PyDict_Check(next) ? next : dict_of(next)) {
      for (const auto& [key, item] : entries_of(dict)) open.push_back(item);
    }
  }
}

void Watcher::guard(const std::string& path, PyObject* dict, PyObject* key) {
  read(Kind::kEntry, dict, key, path);
  if (PyObject* held = find_entry(dict, key)) load_content(held);
}

void Watcher::add_object(PyObject* value, const std::string& path) {
  if (!seen_objects_.insert(value).second) return;
  objects_.emplace_back(path, borrowed(value));
}

std::string Watcher::path_of(PyObject* value) const {
  const auto found = existing_.find(value);
  return found == existing_.end() ? type_name(value) : found->second;
}

std::string Watcher::path_of_item(PyObject* owner, PyObject* key) const {
  return path_of(owner) + "[" + shown(key) + "]";
}

Watcher::Id Watcher::id_of(Kind kind, PyObject* owner, PyObject* key) {
  if (key == nullptr) return {kind, owner, nullptr, 0};
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(key));
  if (PyLong_Check(key)) {
    if (const auto value = int64_of(key)) return {kind, owner, type, *value};
  } else if (PyUnicode_CheckExact(key) || PyBytes_CheckExact(key)) {
    return {kind, owner, type, PyObject_Hash(key)};
  }
  return {kind, owner, nullptr, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(key))};
}

std::size_t Watcher::note(Kind kind, PyObject* owner, PyObject* key, const std::string& path,
                          bool is_read) {
  const auto [entry, is_new] = noted_.emplace(id_of(kind, owner, key), 0);
  if (!is_new) return entry->second;
  find_by(key);
  Slot slot{kind, path, Root::guarding(roots_, owner), Root(roots_, key)};
  const py::object value = value_before(slot);
  const bool is_argument = slot.is_assignable() && moving_.is_argument(owner, key);
  if (is_read && value && !is_argument) take_back(value.ptr());
  // a hyperparameter or a counter: whoever follows numbers knows where it goes
  const bool follows = value && holds_followed(value.ptr());
  slot.is_guarded = is_read && !follows && !is_argument;
  slot.place = locate();
  const std::size_t position = entry->second = slots_->add(std::move(slot), value);
  if (value && is_argument) mark_fixed_in(value.ptr(), path);
  // whatever number stands there, it is that class which holds it
  if (follows && kind == Kind::kAttribute) note(Kind::kHolder, owner, key, path, true);
  return position;
}

void Watcher::look_at_thread(const std::string& path) {
  if (torch::autograd::get_current_graph_task_id() == -1) return;
  const auto node = torch::autograd::get_current_node();
  if (node != nullptr && !node->device().is_cpu())
    refuse("the step asks in a backward on a device for `" + path +
           "`, which each thread has for itself: eager runs that in a thread of autograd's");
}

void Watcher::read(Kind kind, PyObject* owner, PyObject* key, const std::string& path) {
  if (kind == Kind::kVariable || kind == Kind::kRunning || kind == Kind::kHandled)
    look_at_thread(path);
  if (kind == Kind::kHas && has_written(owner, key)) return;  // it is there, or not, by the step
  const bool is_of_container = kind == Kind::kSize || kind == Kind::kItem || kind == Kind::kHas ||
                               kind == Kind::kKeys || kind == Kind::kEntry;
  const auto changed = is_of_container ? changed_content(owner) : std::nullopt;
  const auto is_known = [&] {
    return slots_->slot(*changed).is_appended_to &&
           (kind == Kind::kSize || (kind == Kind::kItem && size_before(owner)));
  };
  if (changed && !is_known()) {
    // what stands there now is of the middle of the step: what the container held before counts
    slots_->slot(*changed).is_guarded = true;
    const py::object now = held_at(owner, key);
    if (now && !has_written(owner, key)) mark(now.ptr(), path);
    return;
  }
  const std::size_t noted = noted_.size();
  const std::size_t position = note(kind, owner, key, path, true);
  Slot& slot = slots_->slot(position);
  // a method that changed it has left some of what was there before
  if (kind == Kind::kContent) slot.is_guarded = true;
  if (!slot.is_guarded) return;
  // what the step has put there since did not exist before
  const bool may_be_own = slot.is_written || (kind == Kind::kVariable && noted == noted_.size());
  const bool leads_on = kind == Kind::kEntry || kind == Kind::kCell || kind == Kind::kItem ||
                        kind == Kind::kAttribute || kind == Kind::kMember ||
                        kind == Kind::kVariable || kind == Kind::kNamespace ||
                        kind == Kind::kReferent || kind == Kind::kHandled;
  if (leads_on && !may_be_own) {
    const py::object value = value_before(slot);
    if (value) mark(value.ptr(), path);
  }
}

void Watcher::write(Kind kind, PyObject* owner, PyObject* key, const std::string& path) {
  const std::size_t position = note(kind, owner, key, path, false);
  Slot& slot = slots_->slot(position);
  if (!locks_.empty()) written_under_lock_.emplace_back(position, locks_.back().lock);
  if (!slot.is_written) slot.place = locate();
  if (!slot.is_written && kind == Kind::kEntry) written_entries_[owner].push_back(position);
  if (kind == Kind::kEntry && (!slot.is_written || !slot.value())) slot.came = ++came_;
  if (!slot.is_written && kind == Kind::kItem) written_items_[owner].push_back(position);
  slot.is_written = true;
  if (kind != Kind::kCell && !globals_.contains(owner)) slots_->hold_containers();
  const std::string name = key == nullptr         ? path
                           : PyUnicode_Check(key) ? text_of(key)
                           : is_member(key)       ? text_of(PyDescr_NAME(key))
                                                  : path;
  writes_.emplace(name, slot.place);
}

bool Watcher::has_put(PyObject* object, PyObject* name) const {
  PyObject* const dict = dict_of(object);
  return dict != nullptr && has_written(dict, name);
}

void Watcher::find_by(PyObject* key, bool is_inside, int depth) {
  if (key == nullptr || depth == 0 || is_atom(key)) return;
  std::vector<PyObject*> held;
  if (PyTuple_Check(key) || PyFrozenSet_Check(key)) {
    add_held(key, held);
  } else if (PyMethod_Check(key)) {
    held.push_back(PyMethod_GET_SELF(key));
  } else if (PyCFunction_Check(key)) {
    held.push_back(PyCFunction_GET_SELF(key));
  } else if (is_inside && exists(key) && may_stand_for(key, key)) {
    moving_.keep_objects();
  }
  for (PyObject* const each : held) find_by(each, true, depth - 1);
}

void Watcher::look_at_reference(PyObject* value) {
  if (!is_dead_reference(value)) return;
  refuse(
      "the step compares a weak reference whose object is gone, or asks for its hash or text: only "
      "its identity tells it from others, and each call leaves another one");
}

/// The text that C makes of an object without one of its own shows where it lies, and so does its
/// hash, in the order of a set.
void Watcher::look_at_address(PyObject* value, int depth) {
  if (value == nullptr || depth == 0 || is_atom(value) || is_tensor(value)) return;
  look_at_reference(value);
  const bool is_own = is_plain_object(value);
  if (is_own && Py_TYPE(value)->tp_repr == PyBaseObject_Type.tp_repr) moving_.keep_objects();
  if (!is_own && !PyTuple_Check(value) && !PyList_Check(value) && !PyDict_Check(value) &&
      !PyAnySet_Check(value) && !is_deque(value))
    return;
  std::vector<PyObject*> held;
  add_held(is_own ? dict_of(value) : value, held);
  for (PyObject* const each : held) look_at_address(each, depth - 1);
}

bool Watcher::is_given_key(PyObject* key, int depth) const {
  if (depth > 0 && (PyTuple_Check(key) || PyFrozenSet_Check(key))) {
    std::vector<PyObject*> held;
    add_held(key, held);
    return std::ranges::any_of(
        held, [this, depth](PyObject* each) { return is_given_key(each, depth - 1); });
  }
  return given_keys_.contains(key) &&
         (is_tensor(key) || Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash);
}

void Watcher::look_at_key(PyObject* value, int depth) {
  look_at_address(value);
  if (value == nullptr || depth == 0 || is_atom(value)) return;
  if (!PyTuple_Check(value) && !PyList_Check(value) && !PyDict_Check(value) &&
      !PyAnySet_Check(value))
    return look_which(value, nullptr);
  std::vector<PyObject*> held;
  add_held(value, held);
  for (PyObject* const each : held) look_at_key(each, depth - 1);
}

/// A dict as it was before the step added entries to it; null where that is what it is, or nobody
/// knows.
py::object Watcher::content_before(PyObject* dict) const {
  const auto written = written_entries_.find(dict);
  if (written == written_entries_.end() || !PyDict_CheckExact(dict)) return {};
  std::vector<PyObject*> added;
  for (const std::size_t position : written->second) {
    if (slots_->held_some(position)) return {};
    added.push_back(slots_->slot(position).key.get());
  }
  py::dict before;
  for (const auto& [key, value] : entries_of(dict)) {
    const auto is_it = [key = key](PyObject* other) { return is_same_key(key, other); };
    if (std::ranges::any_of(added, is_it)) continue;
    if (!is_plain_key(key) || PyDict_SetItem(before.ptr(), key, value) != 0) return {};
  }
  return before;
}

py::object Watcher::value_before(const Slot& slot) const {
  const bool is_of_all =
      slot.kind == Kind::kContent || slot.kind == Kind::kSize || slot.kind == Kind::kKeys;
  PyObject* const owner = slot.owner.get();
  const bool may_grow = slot.kind == Kind::kSize || slot.kind == Kind::kItem;
  const auto changed = may_grow ? changed_content(owner) : std::nullopt;
  const bool has_grown = changed && slots_->slot(*changed).is_appended_to;
  if (has_grown && slot.kind == Kind::kSize) return py::int_(slots_->size_when_met(*changed));
  if (has_grown && slot.kind == Kind::kItem && is_from_the_end(slot.key.get())) {
    const Py_ssize_t added = size_of(owner) - slots_->size_when_met(*changed);
    const Py_ssize_t before = PyNumber_AsSsize_t(slot.key.get(), nullptr);
    return held_at(owner, py::int_(before - added).ptr());
  }
  const py::object before = is_of_all ? content_before(owner) : py::object();
  if (!before) return slot.value();
  if (slot.kind == Kind::kContent) return before;
  if (slot.kind == Kind::kSize) return py::int_(PyDict_GET_SIZE(before.ptr()));
  return stolen(PyDict_Keys(before.ptr()));
}

std::vector<py::object> Watcher::given_in(PyObject* owner) const {
  std::vector<py::object> given;
  const bool has_items =
      PyDict_Check(owner) || PyList_Check(owner) || PyAnySet_Check(owner) || is_deque(owner);
  if (!has_items || (given_containers_.empty() && given_.empty())) return given;
  std::vector<std::pair<PyObject*, int>> open;
  // which of the places that count as arguments hold one object is compared
  if (PyDict_Check(owner)) {
    for (const auto& [key, item] : entries_of(owner)) {
      open.emplace_back(key, 0);
      if (!moving_.is_argument(owner, key)) open.emplace_back(item, 0);
    }
  } else {
    const py::object items = list_of(owner);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
      if (!moving_.is_argument(owner, py::int_(i).ptr()))
        open.emplace_back(PyList_GET_ITEM(items.ptr(), i), 0);
    }
  }
  constexpr int kDepth = 6;
  while (!open.empty()) {
    const auto [value, depth] = open.back();
    open.pop_back();
    const bool is_given = is_tensor(value)
                              ? given_.contains(value)
                              : !PyTuple_Check(value) && given_containers_.contains(value);
    if (is_given) {
      given.push_back(borrowed(value));
    } else if (depth < kDepth && (is_container(value) || PyTuple_Check(value))) {
      std::vector<PyObject*> held;
      add_held(value, held);
      for (PyObject* const each : held) open.emplace_back(each, depth + 1);
    }
  }
  return given;
}

void Watcher::change(PyObject* owner, const std::string& path, std::optional<Py_ssize_t> appended) {
  // whether one drops items is asked wherever a length or a position follows from what was there
  if (is_deque(owner)) read(Kind::kMost, owner, nullptr, path + ".maxlen");
  const std::size_t position = note(Kind::kContent, owner, nullptr, path, false);
  const auto [held, is_first] = given_in_changed_.try_emplace(owner);
  if (is_first) held->second = given_in(owner);
  if (!appended) {  // that it is in there, and no other, is not to be asked of the content alone
    for (const py::object& each : std::exchange(held->second, {})) {
      if (!is_tensor(each.ptr())) {
        mark(each.ptr(), path);
        continue;
      }
      refuse("the step changes `" + path +
             "` as a whole, in which a tensor stood that it is given: whether that is the one that "
             "it is given now is not compared");
    }
  }
  Slot& slot = slots_->slot(position);
  if (!locks_.empty()) written_under_lock_.emplace_back(position, locks_.back().lock);
  slot.place = locate();
  slot.is_changed = true;
  slot.is_appended_to &= appended.has_value();
  // an item that was assigned before may stand elsewhere now, and is seen with all others
  for (const std::size_t at : written_items_[owner]) {
    Slot& item = slots_->slot(at);
    if (appended && !is_from_the_end(item.key.get()) && !is_bounded(owner)) continue;
    item.is_looked_after = true;
    slots_->slot(position).is_appended_to = false;
  }
  slot.appended += appended.value_or(0);
  slots_->hold_containers();
  const std::size_t dot = path.rfind('.');
  writes_.emplace(dot == std::string::npos ? path : path.substr(dot + 1), slot.place);
}

void Watcher::refuse(const std::string& message, RefusalCode code) {
  const auto same = [&](const Finding& found) { return found.message == message; };
  if (std::ranges::any_of(findings_, same)) return;
  findings_.push_back({code, message, locate()});
}

std::unique_ptr<SlotWatch> Watcher::take() {
  for (Switch& each : switches_) {
    if (!noted_.contains(each.id)) slots_->add(std::move(each.slot), each.value);
  }
  switches_.clear();
  if (!moving_.containers().empty()) {
    std::vector<std::pair<PyObject*, std::string>> known;
    for (const auto& [object, path] : existing_) {
      if (is_container(object) || is_plain_object(object)) known.emplace_back(object, path);
    }
    slots_->know(known);
  }
  return std::move(slots_);
}

void Watcher::release() {
  for (const auto& [object, path] : existing_) {
    // one that code of the step makes may be of this call, though it was read from where it was put
    const bool may_be_new =
        PyFunction_Check(object) &&
        made_.contains(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(object)));
    if (!may_be_new) met_.insert(object);
  }
  for (const auto& [tensor, times] : given_) given_keys_.insert(tensor);
  given_keys_.insert(given_containers_.begin(), given_containers_.end());  // some are gone by now
  static_cast<Met&>(*this) = {};
}

void Watcher::look_which(PyObject* object, PyObject* among) {
  look_at_reference(object);
  if (PyWeakref_CheckRef(object)) object = referent_of(object);  // found by that
  find_by(object);
  if (PyTuple_Check(object) || PyFrozenSet_Check(object)) return look_at_key(object);
  if (given_methods_.contains(object)) {
    refuse(
        "the step asks which object a method is that it is given, and each call may make another");
    return;
  }
  // found by its identity; which of the program's own it is, SlotWatch::know sees to
  const bool is_object =
      given_containers_.contains(object) && Py_TYPE(object)->tp_hash == PyBaseObject_Type.tp_hash;
  const auto found = given_.find(object);
  if (found == given_.end() && !given_.contains(among) && !is_object) return;
  if (object == among && !is_object && found->second == 1) return;
  // which of its arguments are one tensor is compared before each replay
  if (found != given_.end() && given_.contains(among)) return;
  refuse(std::string("the step asks which ") + (is_object ? "object" : "tensor") +
         " it is that it is given, and others are given to other calls");
}

std::string Watcher::place_of_write(const std::string& name) const {
  const auto found = writes_.find(name);
  return found == writes_.end() ? "" : found->second;
}

bool Watcher::leave_unwatched() {
  ++unwatched_;
  awaited_.emplace_back().is_unwatched = true;
  return true;
}

bool Watcher::look(const Instruction& given) {
  look_at_singles(given);
  if (given.operation == Operation::kGiveOut && (add_up(given) || gives_to_torch(given.code)))
    return false;
  if (given.operation == Operation::kImport ||
      (given.operation == Operation::kCall && imports(given.callee))) {
    if (given.operation == Operation::kImport) {
      static PyObject* const importer = PyUnicode_InternFromString("__import__");
      read(Kind::kEntry, given.builtins, importer, "__import__");
    }
    // what modules do as they are loaded is done once, and no replay's to do
    leave_unwatched();
    const bool is_named = given.operation == Operation::kCall && given.arguments != nullptr &&
                          given.count > 0 && PyUnicode_Check(given.arguments[0]);
    awaited_.back().imported = is_named ? given.arguments[0] : given.name;
    return true;
  }
  if (given.operation == Operation::kCall && logs(given.callee)) {
    // locks, clocks and frames that a logger looks at are of no interest beside what it shows
    refuse_output("logging");
    return leave_unwatched();
  }
  if (given.operation == Operation::kCall &&
      (tells_packages(given.callee) || shows_warning(given.callee, given.code))) {
    return leave_unwatched();
  }
  if (!is_for_numbers_ && arrays_.empty() && whose(given.code) == Whose::kTorchs) {
    return look_at_torchs(given);
  }
  awaited_.emplace_back();
  Instruction in = given;
  in.first = without_proxy(in.first);
  in.second = without_proxy(in.second);
  if (!arrays_.empty() && look_at_arrays(in))
    return awaited_.back().array != nullptr || awaited_.back().listed;
  if (is_for_numbers_ || whose(in.code) == Whose::kTorchs) return look_at_numbers(in);
  const bool does_ops = operation_of_torch(in);
  bool waits = does_ops || follow(in);
  load_methods_of_operands(in);
  switch (in.operation) {
    case Operation::kLoadGlobal:
      load_global(in);
      break;
    case Operation::kStoreGlobal:
    case Operation::kDeleteGlobal:
      write(Kind::kEntry, in.globals, in.name, text_of(in.name));
      break;
    case Operation::kLoadCell:
      if (in.is_own || own_cells_.contains(in.first)) break;
      read(Kind::kCell, in.first, nullptr, text_of(in.name));
      break;
    case Operation::kCloseOver:
      if (in.is_own && own_cells_.insert(in.first).second) held_.push_back(borrowed(in.first));
      break;
    case Operation::kReraise:
      load_handled();
      break;
    case Operation::kRaise:
      if (!exists(in.first) || !PyExceptionInstance_Check(in.first)) break;
      refuse("the step raises `" + path_of(in.first) +
             "`, which was there before and keeps each place where "
             "it was raised");
      break;
    case Operation::kStoreCell:
    case Operation::kDeleteCell:
      if (in.is_own || own_cells_.contains(in.first)) break;
      write(Kind::kCell, in.first, nullptr, text_of(in.name));
      break;
    case Operation::kLoadAttribute:
      load_attribute(in.first, in.name);
      if ((exists(in.first) || is_part_of_model(in.first)) && !has_put(in.first, in.name)) {
        awaited_.back().path = path_of(in.first) + "." + text_of(in.name);
        waits = true;
      }
      break;
    case Operation::kLoadSuper:
      load_behind(in.first, in.second, in.name);
      break;
    case Operation::kDeleteAttribute:
      delete_attribute(in.first, in.name);
      break;
    case Operation::kStoreAttribute:
      store_attribute(in.first, in.name);
      break;
    case Operation::kLoadItem:
      load_index(in.first, in.second);
      if (waits && !does_ops) break;  // nothing holds it
      if (const std::optional<bool> awaits = follow_from_the_end(in.first, in.second)) {
        waits = *awaits;
      } else {
        load_item(in.first, in.second);
      }
      break;
    case Operation::kDeleteItem:
      load_index(in.first, in.second);
      look_up(in.first, "__delitem__");
      if (is_done_by_code(in.first, "__delitem__")) break;
      if (exists(in.first)) take_entry(in.first, in.second, path_of(in.first));
      // those after it move up
      if (!PyDict_Check(in.first) && exists(in.first)) change(in.first, path_of(in.first));
      store_item(in.first, in.second, nullptr);
      break;
    case Operation::kStoreItem:
      load_index(in.first, in.second);
      store_item(in.first, in.second);
      if (is_done_by_code(in.first, "__setitem__")) break;
      if (is_tensor(in.first)) {
        load_given(in.second);
        if (in.third != nullptr) load_given(in.third);
      } else if (in.third != nullptr) {
        load_stored(in.first, in.second, in.third);
      }
      break;
    case Operation::kBinary:
    case Operation::kCompare:
      if (PyUnicode_Check(in.first)) look_at_address(in.second);
      if (in.is_in_place) change_given(in.first);
      if (in.is_in_place && in.made == Operator::kAdd && PyList_CheckExact(in.first) &&
          exists(in.first)) {
        load_content(in.second);
        change(in.first, path_of(in.first), appended_by("extend", in.first, in.second));
        break;
      }
      if (in.is_in_place && PyDict_CheckExact(in.first) && exists(in.first) &&
          PyDict_CheckExact(in.second)) {  // `d |= {...}`
        load_content(in.second);
        for (const auto& [key, value] : entries_of(in.second)) store_item(in.first, key);
        break;
      }
      look_up(in.first, nullptr);
      look_up(in.second, nullptr);
      load_deep(in.first, in.operation == Operation::kCompare);
      load_deep(in.second, in.operation == Operation::kCompare);
      break;
    case Operation::kContains:
      look_up(in.first, "__contains__");
      look_which(in.second, in.first);
      if ((PyDict_Check(in.first) || PyAnySet_Check(in.first)) && exists(in.first) &&
          is_plain_key(in.second) && !is_followed(in.second)) {
        read(Kind::kHas, in.first, in.second, path_of_item(in.first, in.second));
      } else {
        load_deep(in.first, true);
        load_deep(in.second, true);
      }
      break;
    case Operation::kGiveOut:
      load_deep(in.first);
      if (gives_objects_ != 0) load_objects(in.first);
      break;
    case Operation::kHash:  // a set goes over them in the order of their addresses
      for (Py_ssize_t i = 0; i < in.count; i += in.stride) look_at_address(in.arguments[i]);
      break;
    case Operation::kIdentity:
      if (!is_atom(in.first) && !is_atom(in.second)) {
        look_at_reference(in.first);
        look_at_reference(in.second);
      }
      if (is_tensor(in.first) && is_tensor(in.second)) look_which(in.first, in.second);
      for (const auto& [one, other] : {std::pair(in.first, in.second), {in.second, in.first}}) {
        if (given_methods_.contains(one) && !is_atom(other)) look_which(one, other);
      }
      if (was_there(in.first) && was_there(in.second)) slots_->hold_containers();
      break;
    case Operation::kUnary:
      look_up(in.first, nullptr);
      load_deep(in.first);
      break;
    case Operation::kTest:
    case Operation::kLength:
      look_up(in.first, "__bool__");
      look_up(in.first, "__len__");
      if (in.operation == Operation::kLength || !test_size(in.first)) load_size(in.first);
      break;
    case Operation::kFormat:
      look_at_address(in.first);
      load_deep(in.first);
      break;
    case Operation::kIterate:
    case Operation::kSpread:
      if (PyObject* names = names_to_import(in.first)) {
        mark(names, path_of(in.first));
        load_content(names);
      }
      look_up(in.first, "__iter__");
      load_content(in.first);
      break;
    case Operation::kNext:
      load_iterator(in.first);
      break;
    case Operation::kMatchClass:
      class_of(in.first);
      load_matched(in);
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(in.third); ++i) {
        load_attribute(in.first, PyTuple_GET_ITEM(in.third, i));
      }
      break;
    case Operation::kMatchKeys:
      if (!PyDict_Check(in.first)) look_up(in.first, "get");
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(in.second); ++i) {
        load_item(in.first, PyTuple_GET_ITEM(in.second, i));
      }
      break;
    case Operation::kEnter:
      look_up(in.first, "__enter__");
      look_up(in.first, "__exit__");
      load_given(in.first);
      take_lock(in.first);
      break;
    case Operation::kCall:
      waits = call(in);
      break;
    case Operation::kImport:
    case Operation::kNone:
      break;
  }
  return waits || awaited_.back().gives_objects;
}

bool Watcher::before(const Instruction& in) {
  if (slots_ == nullptr) return false;
  if (put_tensors(in)) {
    Instruction changed = in;
    changed.second = *in.second_at;
    return before(changed);
  }
  const std::size_t awaited = awaited_.size();
  if (in.globals != newest_globals_) globals_.insert(newest_globals_ = in.globals);
  const bool is_call = in.operation == Operation::kCall;
  newest_callee_ = is_call ? in.callee : nullptr;
  newest_argument_ = is_call && in.arguments != nullptr && in.count > 0 ? in.arguments[0] : nullptr;
  bool waits = false;
  try {
    waits = look(in);
  } catch (const std::exception& error) {
    refuse(std::string("what the step reads could not be watched: ") + error.what(),
           RefusalCode::kRecordingFailed);
  }
  awaited_.resize(awaited + (waits ? 1 : 0));
  if (in.operation == Operation::kIdentity) show_own(in);
  PyErr_Clear();
  return waits;
}

void Watcher::after(PyObject** result) {
  const Awaited awaited = std::move(awaited_.back());
  awaited_.pop_back();
  if (awaited.is_unwatched) --unwatched_;
  const bool is_there = result != nullptr && *result != nullptr;
  // an iterator gives them as it is gone over
  if (awaited.gives_objects && !(is_there && PyIter_Check(*result))) --gives_objects_;
  if (awaited.array != nullptr) leave_out_ops(false);
  if (awaited.reads != Reads::kNone) end_ops(awaited, result);
  if (awaited.added) return end_sum(awaited, result);
  if (awaited.number) return take_number(*awaited.number, result);
  if (awaited.of_numbers) return end_call(*awaited.of_numbers, result);
  if (slots_ == nullptr) return;
  if (awaited.imported != nullptr) load_imported(awaited.imported, is_there);
  if (!is_there) return;
  if (awaited.array != nullptr) return take_array(awaited, result);
  if (awaited.gives_array) return give_array(*result, tensor_behind(*result));
  for (const auto& [at, number] : awaited.items)
    take_number(number, PySequence_Fast_ITEMS(*result) + at);
  if (awaited.listed) return follow_list(result, tensor_of(awaited.listed.ptr()));
  if (awaited.makes != nullptr) fresh_.insert(*result);
  // the tensors that a cache has kept are the program's
  if (!awaited.cached.empty() && (is_tensor(*result) || PyTuple_Check(*result)))
    note(Kind::kWhole, *result, nullptr, awaited.cached, true);
  // an argument that was in a place of the program's was met as that was read
  if (!awaited.path.empty() && (awaited.is_kept || !given_containers_.contains(*result)))
    mark(*result, awaited.path);
}

}  // namespace steptape::python::watch
