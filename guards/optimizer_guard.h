#pragma once

#include <cstdint>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "guards/entry.h"
#include "guards/varying_numbers.h"
#include "live/objects.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Guards optimizers: groups, the parameters in them, state tensors, and the hyperparameters that
/// have no formulas, by their bits. Reads the numbers that formulas start from: hyperparameters and
/// step counters. What lies in options and states is read in place while these are the objects that
/// they were; only when one is another is it looked for again.
class OptimizerGuard {
 public:
  OptimizerGuard(const trace::Recording& recording, const live::Objects& objects,
                 const live::Snapshot& snapshot);

  /// The optimizers must be alive (Objects::check_alive). Fills the leaves of `entry`.
  Verdict check(Entry& entry) const;

  /// Calls `visit(numbers)` for those of each group.
  template <typename Guard, typename Visit>
  static void for_each_numbers(Guard& guard, Visit&& visit) {
    for (auto& watched : guard.optimizers_) {
      for (auto& group : watched.groups) visit(group.numbers);
    }
  }

  /// Step counters of the states that the step advances, as they are now.
  std::vector<std::int64_t> counters() const;
  /// Advances them as the step does. The newest check must have held, and no one else's code have
  /// run since.
  void advance() const;
  /// How far the step advances them, one for each of `counters`.
  const std::vector<trace::Advance>& advances() const { return advances_; }

 private:
  using Table = std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer>().state())>;

  struct Group {
    std::string path;  ///< "optimizer.param_groups[0]"
    VaryingNumbers numbers;
    std::vector<trace::NamedValue> literals;  ///< of an options class that has more than numbers
    std::vector<const c10::TensorImpl*> parameters;
    mutable const torch::optim::OptimizerOptions* options = nullptr;
    mutable const std::type_info* type = nullptr;        ///< of the options
    mutable std::vector<live::NumberField> fields = {};  ///< one for each of `numbers`
  };
  struct State {
    const void* key = nullptr;  ///< TensorImpl of the parameter, as the optimizer's map has it
    std::string path = {};
    bool is_known = false;  ///< its parameter is in a group; else it only has to be there
    std::vector<const c10::TensorImpl*> tensors = {};  ///< undefined ones too, where that is known
    trace::Index counter_leaf = trace::kNone;
    std::int64_t advance = 0;

    // Of the state object as it was found.
    const torch::optim::OptimizerParamState* object = nullptr;
    const std::type_info* type = nullptr;
    bool has_fields = false;  ///< else its tensors are counted in each check
    std::vector<const at::Tensor*> fields = {};
    std::int64_t* counter = nullptr;
  };
  struct Watched {
    std::string path;
    torch::optim::Optimizer* optimizer;
    std::vector<Group> groups;
    mutable std::vector<State> states;
    mutable std::vector<std::uint32_t> order;  ///< of `states` in the optimizer's map
    std::unordered_map<const void*, std::string> parameters;  ///< of all groups: path by key
  };

  class Recorded;
  Watched watch(const Recorded& recorded, const std::string& path,
                torch::optim::Optimizer& optimizer, const trace::OptimizerLayout& layout,
                const live::Snapshot& snapshot);
  static Verdict check_groups(const Watched& watched, Entry& entry);
  static Verdict check_group(const Group& group, const torch::optim::OptimizerParamGroup& now,
                             Entry& entry);
  static bool read_numbers(const Group& group, const torch::optim::OptimizerParamGroup& now,
                           std::span<double> values);
  static Verdict check_states(const Watched& watched, Entry& entry);
  static bool are_in_place(const Watched& watched, const Table& table);
  static Verdict find_states(const Watched& watched, const Table& table);
  static void find_object(State& state, torch::optim::OptimizerParamState& object);
  static bool holds_tensors(const State& state);

  std::vector<Watched> optimizers_;
  std::vector<trace::Advance> advances_;
};

}  // namespace steptape::guards
