#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "live/fields.h"
#include "live/module_options.h"
#include "live/objects.h"
#include "steptape/verdict.h"

namespace steptape::guards {

/// Guards the public options and members of modules (live/module_options). While nobody assigns to
/// them it compares bytes; where these differ, the values say whether something has changed.
class OptionGuard {
 public:
  /// The next module. They are asked for by number, from 0 on.
  void add(const torch::nn::Module& module);

  /// Where the first bytes of module `k` lie, to be fetched ahead; null: it has no options.
  const void* first(std::size_t k) const;
  /// Whether the bytes of module `k`, which must be alive, are those that they were.
  bool holds(std::size_t k) const;
  /// Of a module that does not hold: the first option that has another value. Holds when all have
  /// the values that they had, in other bytes (a list of equal numbers was assigned): the guard
  /// goes by these from here on.
  Verdict check(std::size_t k, const std::string& path) const;

 private:
  struct Option {
    live::ModuleOption live;
    trace::Value expected;
    std::size_t bytes_at;  ///< in Bytes::then
  };
  struct Module {
    const torch::nn::Module* module;
    std::vector<Option> options;
  };
  /// Bytes of one option, or of several that lie after each other.
  struct Stretch {
    const std::byte* live;
    std::size_t size;
    std::size_t at;  ///< in Bytes::then
  };
  /// Of all modules, packed so that a look takes few loads.
  struct Bytes {
    std::vector<Stretch> stretches;
    std::vector<std::size_t> ends{0};  ///< module `k` has the stretches from ends[k] to ends[k + 1]
    std::vector<std::byte> then;       ///< as they were

    /// The next option. `was` has its bytes as they were; null: they are as they are now.
    void add(Option& option, const std::byte* was);
    void end_module() { ends.push_back(stretches.size()); }
  };

  static std::vector<Option> options_of(const torch::nn::Module& module);
  bool has_bytes(const Option& option) const;
  bool has_value(const Option& expected, const Option& found) const;
  void renew(std::size_t k, std::vector<Option> options) const;

  mutable std::vector<Module> modules_;
  mutable Bytes bytes_;
};

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
    /// Where it stood among the registered ones, to be fetched ahead.
    const void* first_parameter = nullptr;
    /// In `registered_`: parameters, then buffers, then sub-modules.
    std::size_t first, buffers_at = 0, children_at = 0, last = 0;
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
