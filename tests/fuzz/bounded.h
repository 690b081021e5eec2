#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "steptape/error.h"
#include "tests/fuzz/target.h"
#include "tests/storage/allocations.h"
#include "tests/storage/memory_file_system.h"

namespace steptape::fuzz {

/// So many times the size of a file may be read and allocated; to each comes 1 MiB.
struct Bound {
  std::uint64_t times_read = 0;
  std::uint64_t times_allocated = 0;
  /// May be asked for besides, and is not used.
  std::uint64_t reserved = 0;
};

/// What `action` gives, or none where it refuses the file, which must be for its bytes alone. Both
/// must take no more work than `bound` says.
template <typename Action>
auto bounded(storage::MemoryFileSystem& files, std::uint64_t file_bytes, const std::string& verb,
             const Bound& bound, Action&& action) -> std::optional<std::invoke_result_t<Action>> {
  constexpr std::uint64_t kConstant = std::uint64_t{1} << 20;
  std::optional<std::invoke_result_t<Action>> result;
  const std::uint64_t read_before = files.bytes_read();
  std::uint64_t allocated = 0;
  {
    const storage::AllocationCount count;
    try {
      result = action();
    } catch (const Error& error) {
      require(error.code() == ErrorCode::kDataLoss || error.code() == ErrorCode::kUnsupported,
              verb + " refuses a file with: " + error.what());
    }
    allocated = count.bytes();
  }
  require(files.bytes_read() - read_before <= bound.times_read * file_bytes + kConstant,
          verb + " reads more than is allowed");
  require(allocated <= bound.times_allocated * file_bytes + bound.reserved + kConstant,
          verb + " allocates more than is allowed");
  require(files.open_files() == 0, verb + " leaves a file open");
  return result;
}

}  // namespace steptape::fuzz
