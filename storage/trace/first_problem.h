#pragma once

#include <exception>
#include <optional>
#include <string>

namespace steptape::storage {

/// What went wrong first in a writer that lets no failure out. One thread at a time.
class FirstProblem {
 public:
  /// Those after the first are dropped.
  void note(std::exception_ptr problem) noexcept;
  /// Its words, once. It must be a std::exception.
  std::optional<std::string> tell();

 private:
  std::exception_ptr problem_;
  bool is_noted_ = false;
};

}  // namespace steptape::storage
