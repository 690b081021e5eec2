#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "replayer/planner/numbers/bindings.h"
#include "trace/formula.h"
#include "trace/model.h"

namespace steptape::replayer {

/// A tensor of the update by what it is to the optimizer, not by its id: ids are found out as ops
/// are matched.
struct Slot {
  std::size_t index;
};

/// One optimizer's update of one parameter, matched op by op against a recording. A lowering says
/// in the order of the eager code which op comes next, with which tensors and which formulas as its
/// numbers; the first op that is another ends the match. Numbers are bound by their place, never by
/// their values, which may be equal by chance.
class Update {
 public:
  /// The update that starts at op `first`, of `parameter` in group `group` of optimizer `layout`;
  /// `earlier` updates of it came before in the same step.
  Update(const trace::Recording& recording, Bindings& bindings,
         const trace::OptimizerLayout& layout, std::size_t group, const std::string& parameter,
         std::size_t first, std::int64_t earlier);

  trace::Formula hyperparameter(const std::string& name);
  /// The step counter as the update sees it: already advanced.
  trace::Formula step_count();
  /// A branch of the eager code: whether `condition` is not zero in this recording. The plan holds
  /// only while that stays so.
  bool when(const trace::Formula& condition);

  Slot parameter();
  Slot gradient() { return gradient_; }
  Slot state(const std::string& key);
  /// The gradient, or where there is weight decay what most optimizers then go on with:
  /// gradient + weight_decay × parameter.
  Slot decayed_gradient();

  using Operand = std::variant<Slot, trace::Formula>;
  /// The next op is `name` ("aten::add_.Tensor") with these tensors and numbers, in the order of
  /// its schema; arguments after them are what the schema's defaults are. Returns its result: for
  /// an op in place, what it wrote.
  Slot call(std::string_view name, const std::vector<Operand>& operands);

  bool matched() const { return problem_.empty(); }
  /// Why not: "op 12 is `aten::mul_.Scalar`; torch::optim::Adam does `aten::add_.Tensor`".
  const std::string& problem() const { return problem_; }
  std::size_t end() const { return next_; }
  /// Whether its formulas give the very numbers of the recording.
  bool gives_recorded() const { return bits_problem().empty(); }
  /// The first that does not: "op 12, argument 2 is not what lr gives".
  std::string bits_problem() const;
  /// The plan holds while the formulas of `other`, which matches the same ops, give the same.
  void require_same(const Update& other);
  /// Writes down what was matched.
  void commit();

 private:
  bool take(Slot slot, const trace::Value& value);
  Slot known(trace::TensorId id);
  void fail(std::string problem);

  const trace::Recording& recording_;
  Bindings& bindings_;
  const trace::OptimizerLayout& layout_;
  std::string group_path_;
  std::string state_path_;
  std::string parameter_;
  std::size_t next_;
  std::int64_t earlier_;
  std::vector<std::optional<trace::TensorId>> slots_;
  Slot gradient_;
  struct Found {
    trace::ScalarSite site;
    trace::Formula formula;
  };
  std::vector<Found> found_;
  struct Branch {
    trace::Formula condition;
    bool taken;
  };
  std::vector<Branch> branches_;
  std::string problem_;
};

}  // namespace steptape::replayer
