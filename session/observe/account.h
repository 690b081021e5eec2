#pragma once

#include <span>
#include <string>

#include "steptape/refusal.h"
#include "steptape/stats.h"
#include "trace/account.h"

namespace steptape::session {

/// How a front end says what a session tells of a step: in the words of its language and of the
/// program. This one is that of C++.
class Wording {
 public:
  virtual ~Wording() = default;
  /// With the names of the program in place of positions: "inputs[0]" → "x".
  virtual std::string named(const std::string& text) const { return text; }
  virtual std::string remedy_for(const Refusal& refusal) const {
    return std::string(refusal.remedy());
  }
  /// The line of the program at "/home/me/train.cc:41", without the space around it; "" where
  /// nobody has it.
  virtual std::string source_at(const std::string& place) const;
};

/// The program's own line in a place, or "": "train.py:41" of "Optimizer.step > train.py:41".
std::string line_in(const std::string& place);

trace::Account account_of(const Stats& stats, const Wording& wording);

/// The text of Step::explain. `differences` says of each variant what tells it from the first one,
/// or nothing.
std::string explain(const std::string& name, const std::string& place, const Stats& stats,
                    std::span<const std::string> differences = {},
                    const Wording& wording = Wording());

}  // namespace steptape::session
