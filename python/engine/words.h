#pragma once

#include <string>
#include <vector>

#include "session/observe/account.h"

namespace steptape::python {

/// Names of arguments in place of positions, remedies as they work in Python, and the lines that
/// Python knows, those of notebooks too. Needs the GIL.
class Words final : public session::Wording {
 public:
  std::string named(const std::string& text) const override;
  std::string remedy_for(const Refusal& refusal) const override;
  std::string source_at(const std::string& place) const override;

  /// What the program calls each input; "" for structures.
  std::vector<std::string> names;
};

}  // namespace steptape::python
