#include "python/engine/roots.h"

#include <algorithm>
#include <vector>

#include "python/engine/python.h"

namespace steptape::python {
namespace {

bool is_held_weakly(PyObject* object) {
  return !PyType_Check(object) && PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) &&
         *PyObject_GET_WEAKREFS_LISTPTR(object) != nullptr;
}

}  // namespace

Root::Root(Roots& roots, PyObject* object) : object_(object) {
  if (object_ == nullptr) return;
  Py_INCREF(object_);
  link(&roots);
}

Root Root::guarding(Roots& roots, PyObject* object) {
  if (object == nullptr || !is_held_weakly(object)) return {roots, object};
  return weak(roots, object);
}

Root Root::weak(Roots& roots, PyObject* object) {
  const auto weak = stolen(PyWeakref_NewRef(object, nullptr));
  if (!weak) throw py::error_already_set();
  Root root(roots, weak.ptr());
  root.is_weak_ = true;
  return root;
}

Root Root::pinned(Roots& roots, PyObject* object) {
  Root root(roots, object);
  root.is_pinned_ = true;
  return root;
}

PyObject* Root::referent() const noexcept {
  PyObject* found = object_ == nullptr ? nullptr : referent_of(object_);
  return found == Py_None ? nullptr : found;
}

Root::Root(Root&& other) noexcept { *this = std::move(other); }

Root& Root::operator=(Root&& other) noexcept {
  if (this == &other) return *this;
  reset();
  Roots* roots = other.roots_;
  other.unlink();
  object_ = std::exchange(other.object_, nullptr);
  is_weak_ = other.is_weak_;
  is_pinned_ = other.is_pinned_;
  if (roots != nullptr) link(roots);
  return *this;
}

void Root::reset() noexcept {
  unlink();
  Py_XDECREF(std::exchange(object_, nullptr));
}

void Root::link(Roots* roots) noexcept {
  roots_ = roots;
  next_ = roots->first_;
  previous_ = nullptr;
  if (next_ != nullptr) next_->previous_ = this;
  roots->first_ = this;
}

void Root::unlink() noexcept {
  if (roots_ == nullptr) return;
  (previous_ != nullptr ? previous_->next_ : roots_->first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  roots_ = nullptr;
  next_ = previous_ = nullptr;
}

Roots::~Roots() {
  while (first_ != nullptr) first_->unlink();
}

int Roots::visit(visitproc visitor, void* argument) const {
  for (const Root* root = first_; root != nullptr; root = root->next_) {
    if (root->object_ == nullptr) continue;
    if (const int result = visitor(root->object_, argument); result != 0) return result;
  }
  return 0;
}

Py_ssize_t Roots::count(PyObject* object) const noexcept {
  Py_ssize_t count = 0;
  for (const Root* root = first_; root != nullptr; root = root->next_) {
    if (root->object_ == object && !root->is_weak_) ++count;
  }
  return count;
}

bool Roots::replace(std::span<const std::pair<PyObject*, PyObject*>> pairs) {
  for (const Root* root = first_; root != nullptr; root = root->next_) {
    PyObject* const held = root->get();
    if (held == nullptr) continue;
    const auto is_in_way = [&](const auto& pair) {
      return pair.second == held || (pair.first == held && root->is_pinned_);
    };
    if (std::ranges::any_of(pairs, is_in_way)) return false;
  }
  std::vector<py::object> released;  // whose own code may run, and let go of references
  for (Root* root = first_; root != nullptr; root = root->next_) {
    PyObject* const held = root->get();
    const auto pair = std::ranges::find(pairs, held, &std::pair<PyObject*, PyObject*>::first);
    if (held == nullptr || pair == pairs.end()) continue;
    PyObject* const now = root->is_weak_ ? PyWeakref_NewRef(pair->second, nullptr)
                                         : borrowed(pair->second).release().ptr();
    if (now == nullptr) throw py::error_already_set();
    released.push_back(stolen(std::exchange(root->object_, now)));
  }
  ++times_replaced_;
  return true;
}

void Roots::clear() {
  while (first_ != nullptr) first_->reset();
}

}  // namespace steptape::python
