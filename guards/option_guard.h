#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "live/module_options.h"
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

}  // namespace steptape::guards
