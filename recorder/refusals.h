#pragma once

#include <set>
#include <string>
#include <utility>

#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::recorder {

/// The op that a refusal is about; without one it is about the step.
struct Site {
  const std::string* op = nullptr;  ///< "aten::add_"
  trace::Index index = trace::kNone;
  trace::Index scope = trace::kNone;
};

/// Fills Recording::refusals: the first of each code and operator, not every one of a thousand.
class Refusals {
 public:
  explicit Refusals(trace::Recording& recording) : recording_(recording) {}

  void add(RefusalCode code, const Site& site, std::string message);
  /// The same, for a cause that stands once for each `subject` rather than once for each operator.
  void add(RefusalCode code, const std::string& subject, const Site& site, std::string message);
  /// Names the modules of ops, which are known when all ops are.
  void name_modules();

 private:
  trace::Recording& recording_;
  std::set<std::pair<RefusalCode, std::string>> seen_;
};

}  // namespace steptape::recorder
