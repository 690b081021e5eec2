#include "storage/files/owning_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include "steptape/error.h"

namespace steptape::storage {

OwningProcess::OwningProcess() noexcept : number_(::getpid()) {}

bool OwningProcess::is_this_one() const noexcept { return ::getpid() == number_; }

void OwningProcess::require_this_one(const std::filesystem::path& path) const {
  if (is_this_one()) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      fmt::format("{} belongs to the process that this one was forked from", path.string()));
}

}  // namespace steptape::storage
