#include "steptape/verdict.h"

#include <fmt/format.h>

namespace steptape {

std::string Verdict::text() const {
  if (path.empty()) return "all guards hold";
  return fmt::format("{}: {} → {}", path, expected, found);
}

}  // namespace steptape
