#include "python/engine/tracked.h"

#include "steptape/error.h"

namespace steptape::python {

void Tracked::track_model(const std::string& name, const py::object& module) {
  auto modules = std::make_shared<Modules>(roots_, module.ptr());
  session_.objects.track(name, std::shared_ptr<const live::ForeignModules>(modules));
  watched_.emplace_back(name, std::move(modules));
}

void Tracked::track_optimizer(const std::string& name, const py::object& optimizer) {
  auto tracked = std::make_shared<Optimizer>(roots_, optimizer.ptr());
  session_.objects.track(name, std::shared_ptr<const live::ForeignOptimizer>(tracked));
  watched_.emplace_back(name, std::move(tracked));
}

void Tracked::track_generator(const std::string& name, const py::object& generator) {
  if (!is_generator(generator.ptr())) {
    throw Error(ErrorCode::kInvalidArgument, "\"" + name + "\" is no torch.Generator");
  }
  session_.objects.track(name, generator_of(generator.ptr()));
}

void Tracked::track_host(const std::string& name, const py::list& slots) {
  std::vector<Slot> made;
  for (const py::handle& item : slots) {
    const auto slot = py::cast<py::tuple>(item);
    const py::object key = slot[2];
    made.push_back({py::cast<std::string>(slot[0]), Root(roots_, py::object(slot[1]).ptr()),
                    key.is_none() ? Root() : Root(roots_, key.ptr()), py::cast<bool>(slot[3]),
                    py::cast<bool>(slot[4])});
  }
  auto state = std::make_shared<HostState>(roots_, std::move(made));
  session_.objects.track(name, std::shared_ptr<const live::ForeignModules>(state));
  host_ = state;
  watched_.emplace_back(name, std::move(state));
}

void Tracked::guard_slots(const py::list& flags) {
  std::vector<bool> guarded;
  for (const py::handle& flag : flags) guarded.push_back(py::cast<bool>(flag));
  host_->guard(guarded);
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

void Tracked::capture() {
  for (const auto& [name, watched] : watched_) watched->capture();
}

void Tracked::untrack() {
  session_.objects = live::Objects();
  session_.host_values.clear();
  watched_.clear();
  host_.reset();
}

void Tracked::forget() {
  for (const auto& [name, watched] : watched_) watched->forget();
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
      list.append(py::make_tuple(change.path, or_none(change.change.after), or_none(change.owner),
                                 or_none(change.key), change.change.was,
                                 shown(change.change.after.ptr()), change.change.keys,
                                 change.change.is_whole && change.change.after));
    }
  }
  return list;
}

}  // namespace steptape::python
