#include "storage/trace/first_problem.h"

#include <utility>

namespace steptape::storage {

void FirstProblem::note(std::exception_ptr problem) noexcept {
  if (!std::exchange(is_noted_, true)) problem_ = std::move(problem);
}

std::optional<std::string> FirstProblem::tell() {
  const std::exception_ptr problem = std::exchange(problem_, nullptr);
  if (!problem) return std::nullopt;
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace steptape::storage
