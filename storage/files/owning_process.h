#pragma once

#include <filesystem>

namespace steptape::storage {

/// The process that made the object. A forked child has its descriptors too, and must not write to
/// them: what both write would mix.
class OwningProcess {
 public:
  OwningProcess() noexcept;

  bool is_this_one() const noexcept;
  /// Throws Error (failed_precondition) in a forked child. `path` is that of the file.
  void require_this_one(const std::filesystem::path& path) const;

 private:
  int number_;
};

}  // namespace steptape::storage
