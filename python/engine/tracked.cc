#include "python/engine/tracked.h"

#include <tuple>

#include "steptape/error.h"
#include "trace/path.h"

namespace steptape::python {
namespace {

/// What stands in a place that held a number. Of anything but a number its kind: a step that reads
/// it is guarded by what it is.
pack::Leaf leaf_in(PyObject* value) {
  if (value == nullptr) return std::string("nothing");
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value);
  if (PyLong_Check(value) && !PyBool_Check(value)) {
    int overflow = 0;
    const long long integer = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return static_cast<std::int64_t>(integer);
  }
  return type_name(value);
}

}  // namespace

void Tracked::track_model(const std::string& name, const py::object& module) {
  auto modules = std::make_shared<Modules>(roots_, moving_, module.ptr());
  session_.objects.track(name, std::shared_ptr<const live::ForeignModules>(modules));
  watched_.emplace_back(name, std::move(modules));
}

void Tracked::track_optimizer(const std::string& name, const py::object& optimizer) {
  auto tracked =
      std::make_shared<Optimizer>(roots_, moving_, uses_[optimizer.ptr()], optimizer.ptr());
  session_.objects.track(name, std::shared_ptr<const live::ForeignOptimizer>(tracked));
  watched_.emplace_back(name, std::move(tracked));
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
  session_.objects.track(name, std::shared_ptr<const live::ForeignModules>(state));
  host_ = state;
  watched_.emplace_back(name, std::move(state));
}

bool Tracked::begin_watch(const py::list& roots, const py::tuple& given) {
  // a step inside another one is watched with it
  auto* outer = static_cast<watch::Watcher*>(watch::current());
  watch::Watcher& watcher = outer != nullptr ? *outer : *watcher_;
  for (const py::handle& item : roots) {
    const auto root = py::cast<py::tuple>(item);
    watcher.mark(py::object(root[1]).ptr(), py::cast<std::string>(root[0]));
  }
  for (const py::handle& value : given) watcher.give(value.ptr());
  for (const Arguments::Array& array : arrays_) watcher.give_array(array.array, array.tensor);
  watcher.called(py::object(py::cast<py::tuple>(roots[0])[1]).ptr());
  if (outer != nullptr) return false;
  const char* why = nullptr;
  if (!watch::start(*watcher_, &why)) throw Error(ErrorCode::kFailedPrecondition, why);
  return true;
}

bool Tracked::begin_numbers() {
  const char* why = nullptr;
  watcher_->look_at_numbers_only();
  return watch::current() == nullptr && watch::start(*watcher_, &why);
}

py::dict Tracked::end_watch() {
  const bool is_whole = watch::stop();
  py::dict seen;
  py::list findings;
  for (const watch::Watcher::Finding& finding : watcher_->findings()) {
    findings.append(
        py::make_tuple(std::string(name_of(finding.code)), finding.message, finding.place));
  }
  if (!is_whole) {
    findings.append(py::make_tuple(std::string(name_of(RefusalCode::kHostEffect)),
                                   "a tracer or another tool that is told of instructions came "
                                   "while the step ran (sys.settrace), so "
                                   "that not all that it reads was seen",
                                   ""));
  }
  for (const auto& [name, watched] : watched_) {
    auto* optimizer = dynamic_cast<Optimizer*>(watched.get());
    if (optimizer == nullptr) continue;
    if (watcher_->stepped().contains(
            static_cast<PyObject*>(const_cast<void*>(optimizer->identity()))))
      optimizer->note_step();
  }
  py::list objects;
  for (const auto& [path, object] : watcher_->objects()) {
    if (!is_tracked(object.ptr())) objects.append(py::make_tuple(path, object));
  }
  py::list outputs;
  for (const auto& [function, place] : watcher_->outputs())
    outputs.append(py::make_tuple(function, place));
  seen["findings"] = findings;
  seen["objects"] = objects;
  seen["outputs"] = outputs;
  seen["is_known"] = !host_->take(watcher_->take());
  watcher_->release();
  return seen;
}

std::string Tracked::place_of_write(const std::string& name) const {
  return watcher_ == nullptr ? "" : watcher_->place_of_write(name);
}

bool Tracked::is_tracked(PyObject* object) const {
  for (const auto& [name, watched] : watched_) {
    const auto* modules = dynamic_cast<const Modules*>(watched.get());
    const auto* optimizer = dynamic_cast<const Optimizer*>(watched.get());
    if (optimizer != nullptr && optimizer->identity() == object) return true;
    if (modules == nullptr) continue;
    for (const Modules::At& at : modules->tree()) {
      if (at.module == object) return true;
    }
  }
  return false;
}

void Tracked::capture(const py::list& guarded) {
  for (const auto& [name, watched] : watched_) watched->capture();
  if (watch::current() != nullptr) return;  // a step inside another one, or inside itself
  FollowedNumbers::current().clear();
  watcher_ = std::make_unique<watch::Watcher>(roots_, moving_);
  for (const auto& [name, watched] : watched_) {
    if (const auto* modules = dynamic_cast<const Modules*>(watched.get())) {
      for (const Modules::At& at : modules->tree()) {
        watcher_->mark(at.module, trace::join_path(name, at.path));
      }
    } else if (const auto* optimizer = dynamic_cast<const Optimizer*>(watched.get())) {
      watcher_->mark(static_cast<PyObject*>(const_cast<void*>(optimizer->identity())), name);
    }
  }
  for (const py::handle& item : guarded) {
    const auto place = py::cast<py::tuple>(item);
    watcher_->guard(py::cast<std::string>(place[0]), py::object(place[1]).ptr(),
                    py::object(place[2]).ptr());
  }
}

void Tracked::untrack() {
  session_.objects = live::Objects();
  session_.host_values.clear();
  watched_.clear();
  watcher_.reset();
  host_.reset();
}

void Tracked::declare_moving() {
  std::vector<std::string> taken;
  for (const auto& declared : session_.host_values) taken.push_back(declared.name);
  moving_.rename(taken);
  for (std::size_t i = 0; i < moving_.places().size(); ++i) {
    if (moving_.places()[i].is_argument) continue;
    session_.host_values.push_back({moving_.places()[i].name, [this, i]() -> pack::Leaf {
                                      const MovingPlaces::Place& place = moving_.places()[i];
                                      if (place.owner.get() == nullptr) return std::string("gone");
                                      const py::object value =
                                          held_at(place.owner.get(), place.key.get());
                                      return leaf_in(value.ptr());
                                    }});
  }
}

py::list Tracked::moving() const {
  py::list all;
  for (const MovingPlaces::Place& place : moving_.places()) {
    if (place.owner.get() == nullptr || place.is_argument) continue;
    all.append(py::make_tuple(
        place.name, borrowed(place.owner.get()),
        place.key.get() == nullptr ? py::object(py::none()) : borrowed(place.key.get())));
  }
  return all;
}

bool Tracked::take_news() {
  bool has_news = moving_.take_news();
  for (auto& [optimizer, use] : uses_) has_news |= std::exchange(use.has_news, false);
  return has_news;
}

void Tracked::forget() {
  for (const auto& [name, watched] : watched_) watched->forget();
  watcher_.reset();
}

py::list Tracked::counters() const {
  const live::Snapshot snapshot = session_.objects.snapshot();
  const live::PathOf path_of = [&snapshot](const at::Tensor& tensor) {
    return snapshot.path_of(tensor);
  };
  py::list all;
  for (const auto& [name, watched] : watched_) {
    const auto* optimizer = dynamic_cast<const Optimizer*>(watched.get());
    if (optimizer == nullptr) continue;
    for (const py::handle& counter : optimizer->counters(name, path_of)) all.append(counter);
  }
  return all;
}

py::list Tracked::changes() const {
  py::list list;
  const auto or_none = [](const py::object& object) {
    return object ? object : py::object(py::none());
  };
  for (const auto& [name, watched] : watched_) {
    for (const HostChange& change : watched->changes(name)) {
      list.append(py::make_tuple(
          change.path, or_none(change.change.after), or_none(change.owner), or_none(change.key),
          change.change.was, shown(change.change.after.ptr()), change.change.keys,
          change.change.is_whole && change.change.after, change.place, change.moves,
          change.appended ? py::object(py::int_(*change.appended)) : py::object(py::none())));
    }
  }
  return list;
}

}  // namespace steptape::python
