#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "guards/option_guard.h"
#include "live/module_fields.h"
#include "live/objects.h"
#include "steptape/verdict.h"

namespace steptape::guards {

/// Guards the trees of tracked modules: training flags, public options, and which sub-modules,
/// parameters and buffers are registered where, by name and identity.
class ModuleGuard {
 public:
  explicit ModuleGuard(const live::Snapshot& snapshot);
  /// The root modules must be alive (Objects::check_alive).
  Verdict check() const;

 private:
  /// What is registered under a name. Tensors are told by their address: a plan that uses one knows
  /// by itself whether it is still alive.
  struct Registered {
    std::string name;
    const void* object;
    /// Of a sub-module, so that another at the address of a dead one is not taken for it.
    std::weak_ptr<torch::nn::Module> owner;
  };
  struct Node {
    std::string path;
    const torch::nn::Module* module;
    bool training;
    const live::Tensors* parameters;
    const live::Tensors* buffers;
    const live::SubModules* children;
    const void* first_parameter;  ///< where it stood among the registered ones, to be fetched ahead
    /// In `registered_`: parameters, then buffers, then sub-modules.
    std::size_t first, buffers_at, children_at, last;
  };

  template <typename Dict>
  void note(const Dict& dict);
  template <typename Dict>
  bool holds(const Dict& dict, std::size_t first, std::size_t last) const;
  /// The first name of which something else is registered than in [first, last).
  template <typename Dict>
  Verdict changed(GuardKind kind, const Node& node, const Dict& dict, std::size_t first,
                  std::size_t last) const;
  void fetch(std::size_t k) const;
  /// Training flag and registered objects.
  bool holds(const Node& node) const;
  /// Of a node that does not hold.
  Verdict changed(const Node& node) const;

  /// Parents before children, so that a child's address is known to be good before it is looked at.
  std::vector<Node> nodes_;
  std::vector<Registered> registered_;
  OptionGuard options_;  ///< of each node
};

}  // namespace steptape::guards
