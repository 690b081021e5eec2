#include "python/engine/tracked.h"

#include <algorithm>
#include <tuple>

#include "python/engine/arguments.h"
#include "python/engine/structure.h"
#include "recorder/frontend_hints.h"
#include "steptape/error.h"
#include "trace/path.h"

namespace steptape::python {
namespace {

/// The object that was found in a place last, kept so that no other gets its address.
struct Found {
  Root object;
  std::uint64_t times = 0;  ///< it was another one than before
};

/// What stands in a place that held a number: of a text, a bool or None its value, of anything else
/// but an int or a float of this class which object it is.
pack::Leaf leaf_in(PyObject* value, PyTypeObject* float_type, Roots& roots, Found& found) {
  if (value == nullptr) return std::string("nothing");
  if (Py_TYPE(value) == float_type) return PyFloat_AS_DOUBLE(value);
  if (PyLong_CheckExact(value)) {
    if (const auto integer = int64_of(value)) return *integer;
  }
  if (PyUnicode_CheckExact(value) || PyBool_Check(value) || value == Py_None) {
    return type_name(value) + " " + text_of(py::str(value).ptr());
  }
  if (found.object.get() != value) {
    found.object = Root(roots, value);
    ++found.times;
  }
  return type_name(value) + " " + std::to_string(found.times);
}

void start(watch::Watcher& watcher) {
  const char* why = nullptr;
  if (!watch::start(watcher, &why)) throw Error(ErrorCode::kFailedPrecondition, why);
}

}  // namespace

void Tracked::track_model(const std::string& name, const py::object& module) {
  auto modules = std::make_shared<Modules>(roots_, moving_, module.ptr());
  session_.objects.track(name, modules);
  watched_.emplace_back(name, modules);
  modules_.emplace_back(name, std::move(modules));
}

void Tracked::track_optimizer(const std::string& name, const py::object& optimizer) {
  auto tracked =
      std::make_shared<Optimizer>(roots_, moving_, uses_[optimizer.ptr()], optimizer.ptr());
  session_.objects.track(name, tracked);
  watched_.emplace_back(name, tracked);
  optimizers_.emplace_back(name, std::move(tracked));
}

void Tracked::track_generator(const std::string& name, const py::object& generator) {
  if (!is_generator(generator.ptr())) {
    throw Error(ErrorCode::kInvalidArgument, "\"" + name + "\" is no torch.Generator");
  }
  session_.objects.track(name, generator_of(generator.ptr()));
}

void Tracked::track_host(const std::string& name, const py::list& places) {
  auto state = std::make_shared<HostState>(roots_, moving_);
  for (const py::handle& item : places) {
    const auto [path, dict, key] = py::cast<std::tuple<std::string, py::dict, py::object>>(item);
    state->add({Slot::Kind::kEntry, path, Root(roots_, dict.ptr()), Root(roots_, key.ptr())});
  }
  session_.objects.track(name, state);
  host_ = state;
  watched_.emplace_back(name, std::move(state));
}

void Tracked::begin_watch(const py::list& roots, const py::tuple& given) {
  for (const py::handle& item : roots) {
    const auto root = py::cast<py::tuple>(item);
    watcher_->mark(py::object(root[1]).ptr(), py::cast<std::string>(root[0]));
  }
  for (const py::handle& value : given) watcher_->give(value.ptr());
  for (const Arguments::Array& array : arrays_) watcher_->give_array(array.array, array.tensor);
  watcher_->called(py::object(py::cast<py::tuple>(roots[0])[1]).ptr());
  watcher_->load_hooks_of_models();
  start(*watcher_);
}

bool Tracked::begin_numbers() {
  if (watch::current() != nullptr) return false;
  watcher_->look_at_numbers_only();
  start(*watcher_);
  return true;
}

py::dict Tracked::end_watch() {
  const bool is_whole = watch::stop();
  if (at_end_of_watch_) at_end_of_watch_(*watcher_);
  py::dict seen;
  const auto refuse = [hints = recorder::FrontendHints::current()](
                          RefusalCode code, const std::string& message, const std::string& place) {
    if (hints != nullptr) hints->refuse(code, message, place);
  };
  watcher_->end();
  for (const auto& [code, message, place] : watcher_->findings()) refuse(code, message, place);
  if (has_tracer()) {
    refuse(RefusalCode::kHostEffect,
           "the program has set a trace or profile function (sys.settrace, sys.setprofile), which "
           "a replay does not call",
           "");
  } else if (!is_whole) {
    refuse(RefusalCode::kHostEffect,
           "a tracer or another tool that is told of instructions came while the step ran "
           "(sys.settrace), so that not all that it reads was seen",
           "");
  }
  for (const auto& [name, optimizer] : optimizers_) {
    if (watcher_->stepped().contains(optimizer->object())) optimizer->note_step();
  }
  py::list objects;
  const std::unordered_set<PyObject*> known = tracked();
  for (const auto& [path, object] : watcher_->objects()) {
    if (!known.contains(object.ptr())) objects.append(py::make_tuple(path, object));
  }
  seen["objects"] = objects;
  seen["is_known"] = !host_->take(watcher_->take());
  for (const auto& [name, modules] : modules_) {
    if (is_whole)
      modules->compare_only([this](PyObject* module) { return watcher_->reads_of(module); });
  }
  watcher_->release();
  handed_.end_call();
  return seen;
}

py::list Tracked::reads() const {
  py::list all;
  if (host_->seen() == nullptr) return all;
  for (const Slot& slot : host_->seen()->slots()) {
    if (!slot.is_guarded || slot.owner.get() == nullptr) continue;
    all.append(py::make_tuple(slot.path, borrowed(slot.owner.get()), or_none(slot.key.get())));
  }
  return all;
}

std::string Tracked::place_of_write(const std::string& name) const {
  return watcher_ == nullptr ? "" : watcher_->place_of_write(name);
}

template <typename Visit>
void Tracked::for_each_module(Visit&& visit) const {
  for (const auto& [name, modules] : modules_) {
    for (const Modules::At& at : modules->tree()) {
      visit(at.path.empty() ? name : name + "." + at.path, at.module);
    }
  }
}

std::unordered_set<PyObject*> Tracked::tracked() const {
  std::unordered_set<PyObject*> all;
  for_each_module([&all](const std::string&, PyObject* module) { all.insert(module); });
  for (const auto& [name, optimizer] : optimizers_) all.insert(optimizer->object());
  return all;
}

void Tracked::refuse_hidden() const {
  static auto* const scripted = as_type(imported("torch.jit", "ScriptModule"));
  recorder::FrontendHints& hints = *recorder::FrontendHints::current();
  for_each_module([&hints](const std::string& path, PyObject* module) {
    if (PyType_IsSubtype(Py_TYPE(module), scripted) != 0) {
      hints.refuse(
          RefusalCode::kUnreplayableOp,
          "module `" + path +
              "` is scripted: its flags and attributes cannot be compared before each replay");
    }
    PyObject* dict = dict_of(module);
    for (const char* kind : {"_parameters", "_buffers"}) {
      PyObject* held = dict == nullptr ? nullptr : PyDict_GetItemString(dict, kind);
      if (held == nullptr || !PyDict_Check(held)) continue;
      for (const auto& [key, value] : entries_of(held)) {
        // torch's own: parameters and buffers that have no shape yet
        if (!is_tensor(value) || is_exact_tensor(value) ||
            type_name(value).starts_with("torch.nn.parameter."))
          continue;
        hints.refuse(RefusalCode::kTensorKind, "`" + trace::join_path(path, text_of(key)) +
                                                   "` is of " + type_name(value) +
                                                   ", a subclass of torch.Tensor");
      }
    }
  });
}

void Tracked::capture(const py::list& guarded) {
  for (const auto& [name, watched] : watched_) watched->capture();
  watcher_ = std::make_unique<watch::Watcher>(roots_, moving_, changed_, handed_);
  for_each_module(
      [this](const std::string& path, PyObject* module) { watcher_->mark_module(module, path); });
  for (const auto& [name, optimizer] : optimizers_) watcher_->mark(optimizer->object(), name);
  for (const py::handle& item : guarded) {
    const auto place = py::cast<py::tuple>(item);
    watcher_->guard(py::cast<std::string>(place[0]), py::object(place[1]).ptr(),
                    py::object(place[2]).ptr());
  }
}

void Tracked::untrack() {
  session_.objects = live::Objects();
  session_.declarations.clear_host_values();
  watched_.clear();
  modules_.clear();
  optimizers_.clear();
  watcher_.reset();
  host_.reset();
}

void Tracked::drop_released(const py::dict& met) const {
  std::vector<py::object> released;
  for (const auto& [key, entry] : entries_of(met.ptr())) {
    PyObject* const object = PyTuple_GetItem(entry, 1);
    if (Py_REFCNT(object) == roots_.count(object) + 1) released.push_back(borrowed(key));
  }
  for (const py::object& key : released) PyDict_DelItem(met.ptr(), key.ptr());
}

void Tracked::declare_moving() {
  const auto tracked = this->tracked();
  std::erase_if(uses_, [&tracked](const auto& use) { return !tracked.contains(use.first); });
  moving_.drop_forgotten();
  std::vector<std::string> taken;
  for (const auto& declared : session_.declarations.host_values()) taken.push_back(declared.name);
  moving_.rename(taken);
  session_.declarations.look_at_places([this] {
    std::vector<session::Declarations::Held> all;
    const std::vector<py::object> given = moving_.left();  // as the call found them
    for (std::size_t i = 0; i < given.size(); ++i) {
      const MovingPlaces::Place& place = moving_.given_at(i);
      const Arguments held = flatten(given[i], place.name);
      auto& [path, kind, is_left, tensors] = all.emplace_back();
      path = place.name;
      kind = held.structure();
      is_left = place.is_left;
      for (std::size_t leaf = 0; leaf + 1 < held.leaves.size(); ++leaf) {
        if (const auto* tensor = std::get_if<at::Tensor>(&held.leaves[leaf]))
          tensors.emplace_back(held.names[leaf], *tensor);
      }
    }
    for (const MovingPlaces::Place& place : moving_.places()) {
      if (!place.is_object()) continue;
      all.push_back({place.name,
                     moving_.holds_its_object(place) ? "an object" : "another",
                     place.is_left,
                     {}});
    }
    return all;
  });
  for (std::size_t i = 0; i < moving_.places().size(); ++i) {
    if (!moving_.places()[i].is_followed()) continue;
    const auto look = [this, i, found = std::make_shared<Found>()]() -> pack::Leaf {
      const MovingPlaces::Place& place = moving_.places()[i];
      if (place.owner.get() == nullptr) return std::string("gone");
      const py::object value = held_at(place.owner.get(), place.key.get());
      return leaf_in(value.ptr(), moving_.expect_float(i, value.ptr()), roots_, *found);
    };
    session_.declarations.add_host_value({moving_.places()[i].name, look, true});
  }
  for (std::size_t i = 0; i < moving_.items().size(); ++i) {
    if (!moving_.items()[i].moves || moving_.items()[i].is_argument) continue;
    const auto look = [this, i, found = std::make_shared<Found>()] {
      const py::object value = moving_.look_up(i);
      return leaf_in(value.ptr(), moving_.items()[i].float_type, roots_, *found);
    };
    const MovingPlaces::Item& item = moving_.items()[i];
    session_.declarations.add_host_value({item.name, look, true, item.leaves});
  }
}

py::list Tracked::moving() const {
  py::list all;
  for (const MovingPlaces::Place& place : moving_.places()) {
    if (place.owner.get() == nullptr || !place.is_followed()) continue;
    all.append(py::make_tuple(place.name, borrowed(place.owner.get()), or_none(place.key.get())));
  }
  return all;
}

std::vector<std::string> Tracked::take_news() {
  std::vector<std::string> news = moving_.take_news();
  for (auto& [optimizer, use] : uses_) {
    if (std::exchange(use.has_news, false)) news.emplace_back("an optimizer");
  }
  return news;
}

void Tracked::forget() {
  for (const auto& [name, watched] : watched_) watched->forget();
  watcher_.reset();
}

py::list Tracked::state_numbers() const {
  std::optional<live::Snapshot> snapshot;  // few optimizers keep numbers of Python's
  const live::PathOf path_of = [this, &snapshot](const at::Tensor& tensor) {
    if (!snapshot) snapshot.emplace(session_.objects.snapshot());
    return snapshot->path_of(tensor);
  };
  py::list all;
  for (const auto& [name, optimizer] : optimizers_) {
    for (const py::handle& number : optimizer->numbers(name, path_of)) all.append(number);
  }
  return all;
}

bool Tracked::is_of_optimizer(PyObject* dict) const {
  return std::ranges::any_of(optimizers_,
                             [dict](const auto& at) { return at.second->holds(dict); });
}

bool Tracked::is_optimizers_own(PyObject* dict) const {
  return is_of_optimizer(dict) || std::ranges::any_of(optimizers_, [dict](const auto& at) {
           PyObject* const object = at.second->object();
           return dict_of(object) == dict || state_of(object) == dict || groups_of(object) == dict;
         });
}

std::optional<std::pair<PyObject*, Py_ssize_t>> Tracked::group_of(PyObject* dict) const {
  for (const auto& [name, optimizer] : optimizers_) {
    if (const auto group = optimizer->group_of(dict)) return std::pair(optimizer->object(), *group);
  }
  return std::nullopt;
}

std::unordered_set<PyObject*> Tracked::changed_containers() const {
  std::unordered_set<PyObject*> changed;
  if (host_->seen() == nullptr) return changed;
  for (const Slot& slot : host_->seen()->slots()) {
    if (slot.is_changed || (slot.is_written && slot.kind != Slot::Kind::kAttribute)) {
      changed.insert(slot.owner.get());
    }
  }
  return changed;
}

/// Whether what changed in a module's attribute lies in one of these containers.
bool Tracked::is_in(const HostChange& change, const std::unordered_set<PyObject*>& changed) {
  if (!change.owner || changed.empty()) return false;
  const auto is_changed = [&changed](const py::object& held) {
    return changed.contains(held.ptr()) || changed.contains(dict_of(held.ptr()));
  };
  py::object held = held_at(change.owner.ptr(), change.key.ptr());
  for (const py::handle& key : change.change.keys) {
    if (!held || is_changed(held)) break;
    const bool is_container = PyDict_Check(held.ptr()) || dict_of(held.ptr()) == nullptr;
    held = held_at(is_container ? held.ptr() : dict_of(held.ptr()), key.ptr());
  }
  return held && is_changed(held);
}

std::map<std::string, std::string> Tracked::guarded() const {
  return host_ == nullptr || host_->seen() == nullptr ? std::map<std::string, std::string>()
                                                      : host_->seen()->guarded();
}

py::list Tracked::changes() const {
  py::list list;
  const std::unordered_set<PyObject*> changed = changed_containers();
  for (const auto& [name, watched] : watched_) {
    const bool is_of_modules = dynamic_cast<const Modules*>(watched.get()) != nullptr;
    for (const HostChange& change : watched->changes(name)) {
      if (is_of_modules && is_in(change, changed)) continue;  // it comes from the host state
      list.append(py::make_tuple(
          change.path, or_none(change.change.after.ptr()), or_none(change.owner.ptr()),
          or_none(change.key.ptr()), change.change.was, shown(change.change.after.ptr()),
          change.change.keys, change.change.is_whole && change.change.after, change.place,
          change.moves,
          change.appended ? py::object(py::int_(*change.appended)) : py::object(py::none()),
          static_cast<int>(change.before)));
    }
  }
  return list;
}

}  // namespace steptape::python
