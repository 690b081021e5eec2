#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace steptape::storage {

/// What went wrong first in a writer that lets no failure out. One thread at a time.
class FirstProblem {
 public:
  /// Those after the first are dropped.
  void note(std::exception_ptr problem) noexcept {
    if (!std::exchange(is_noted_, true)) problem_ = std::move(problem);
  }
  /// Its words, once. It must be a std::exception.
  std::optional<std::string> tell() {
    const std::exception_ptr problem = std::exchange(problem_, nullptr);
    if (!problem) return std::nullopt;
    try {
      std::rethrow_exception(problem);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

 private:
  std::exception_ptr problem_;
  bool is_noted_ = false;
};

}  // namespace steptape::storage
