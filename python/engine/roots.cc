#include "python/engine/roots.h"

namespace steptape::python {

Root::Root(Roots& roots, PyObject* object) : object_(object) {
  if (object_ == nullptr) return;
  Py_INCREF(object_);
  link(&roots);
}

Root::Root(Root&& other) noexcept { *this = std::move(other); }

Root& Root::operator=(Root&& other) noexcept {
  if (this == &other) return *this;
  reset();
  Roots* roots = other.roots_;
  other.unlink();
  object_ = std::exchange(other.object_, nullptr);
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

void Roots::clear() {
  while (first_ != nullptr) first_->reset();
}

}  // namespace steptape::python
