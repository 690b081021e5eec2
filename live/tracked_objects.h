#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/foreign.h"
#include "live/objects.h"

namespace steptape::live {

/// A module or optimizer by name: borrowed, or watched through a weak pointer.
template <typename Object>
struct NamedObject {
  std::string name;
  Object* object;
  std::optional<std::weak_ptr<Object>> owner;  ///< none for an object given by reference

  bool is_alive() const { return !owner || !owner->expired(); }
};

/// An object of another language; which of the three kinds is told by which pointer is set.
struct NamedForeign {
  std::string name;
  std::shared_ptr<const Foreign> object;
  const ForeignModules* modules = nullptr;
  const ForeignOptimizer* optimizer = nullptr;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct NamedGenerator {
  std::string name;
  at::Generator generator;
};

/// What Objects holds; "default" is the first generator.
struct Objects::Impl {
  std::vector<NamedObject<torch::nn::Module>> modules;
  std::vector<NamedObject<torch::optim::Optimizer>> optimizers;
  std::vector<NamedForeign> foreign;
  std::vector<NamedTensor> tensors;
  std::vector<NamedGenerator> generators;
  std::vector<const void*> order;  ///< identities, in the order of tracking
};

}  // namespace steptape::live
