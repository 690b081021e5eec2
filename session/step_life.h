#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/argument.h"
#include "recorder/recorder.h"
#include "session/probing.h"
#include "session/variant.h"
#include "session/verification.h"
#include "steptape/session.h"
#include "trace/model.h"

namespace steptape::session {

struct SessionState;

/// One step's way from warm-up over probes and trial to replay, and back to the eager step whenever
/// a guard fails (the design's "a step's life"). The one place that decides what a call does.
class StepLife final : public StepCore {
 public:
  using Eager = std::function<std::vector<at::Tensor>()>;

  StepLife(SessionState& session, std::string name, std::string place);

  std::optional<std::vector<at::Tensor>> call(std::vector<pack::Leaf> leaves,
                                              const Eager& eager) override;
  Stats stats() const override;
  std::string explain() const override;

  const std::string& name() const { return name_; }
  /// The session is going away; a later call is an error.
  void orphan() { session_ = nullptr; }
  void invalidate();
  trace::Step to_trace() const;

 private:
  std::optional<std::vector<at::Tensor>> call_alone(const std::vector<live::Argument>& arguments,
                                                    const Eager& eager);
  Variant* find_variant(const std::vector<live::Argument>& arguments);
  std::optional<std::vector<at::Tensor>> run(Variant& variant,
                                             const std::vector<live::Argument>& arguments,
                                             const Eager& eager);
  void run_trial(Variant& variant, const Eager& eager);
  void run_audit(Variant& variant, const Eager& eager);
  std::vector<at::Tensor> replay(Variant& variant, const std::vector<live::Argument>& arguments);
  void record(const std::vector<live::Argument>& arguments, const Eager& eager);
  void make_plan(recorder::Recorded recorded);
  std::unique_ptr<Variant> planned(recorder::Recorded recorded);
  void drop(const Variant& variant, Refusal refusal);
  void refuse(std::vector<Refusal> refusals);
  void count(const Refusal& refusal);

  SessionState* session_;
  std::string name_;
  std::string place_;
  Probing probing_;
  std::optional<trace::Recording> warm_up_;
  std::vector<std::unique_ptr<Variant>> variants_;
  std::vector<void*> memory_;
  Stats stats_;
  std::uint64_t variants_made_ = 0;
};

/// The text of Step::explain.
std::string explain(const std::string& name, const std::string& place, const Stats& stats);

}  // namespace steptape::session
