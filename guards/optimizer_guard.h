#pragma once

#include <cstdint>
#include <string>
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
/// step counters.
class OptimizerGuard {
 public:
  OptimizerGuard(const trace::Recording& recording, const live::Objects& objects,
                 const live::Snapshot& snapshot);

  /// The optimizers must be alive (Objects::check_alive). Fills the leaves of `entry`.
  Verdict check(Entry& entry) const;

  /// The plan was verified with the hyperparameters as they are now: they count as seen.
  void settle();
  /// The plan went wrong with them: it holds for the recorded ones alone from here on.
  void pin();

  /// Step counters of the states that the step advances, as they are now.
  std::vector<std::int64_t> counters() const;
  /// Advances them as the step does.
  void advance() const;
  /// How far the step advances them, one for each of `counters`.
  const std::vector<trace::Advance>& advances() const { return advances_; }

 private:
  struct Group {
    std::string path;  ///< "optimizer.param_groups[0]"
    VaryingNumbers numbers;
    std::vector<trace::NamedValue> literals;  ///< of an options class that has more than numbers
    std::vector<const c10::TensorImpl*> parameters;
  };
  struct State {
    void* key;  ///< TensorImpl of the parameter, as the optimizer's map has it
    std::string path;
    std::vector<const c10::TensorImpl*> tensors;
    trace::Index counter_leaf;
    std::int64_t advance;
  };
  struct Watched {
    std::string path;
    std::string type;
    torch::optim::Optimizer* optimizer;
    std::vector<Group> groups;
    std::vector<State> states;
    std::size_t state_size;
  };

  Watched watch(const trace::Recording& recording, const std::string& path,
                torch::optim::Optimizer& optimizer, const trace::OptimizerLayout& layout,
                const live::Snapshot& snapshot);
  static Verdict check_group(const Watched& watched, const Group& group,
                             const torch::optim::OptimizerParamGroup& now, Entry& entry);
  static Verdict check_states(const Watched& watched, Entry& entry);
  std::int64_t* counter_of(const Watched& watched, const State& state) const;
  /// Calls `visit(numbers, values)` for each group, with its values as they are now.
  template <typename Visit>
  void for_each_group(Visit&& visit);

  std::vector<Watched> optimizers_;
  std::vector<trace::Advance> advances_;
};

}  // namespace steptape::guards
