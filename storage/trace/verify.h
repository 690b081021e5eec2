#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "storage/trace/scan.h"

/// The checks of a file that need more than its headers.
namespace steptape::storage {

/// Positions in `blocks` of those whose payload is not what its checksum was taken of. Reads all
/// payloads, in parallel. Throws Error (io).
std::vector<std::size_t> damaged_blocks(const InputFile& file, std::span<const Block> blocks);

/// Where the index says that blocks lie, the index itself left out.
struct Announced {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t type = 0;
};

struct Index {
  std::vector<Announced> announced;
  std::size_t own_blocks = 0;  ///< in which the index itself lies
};

/// The index in `blocks`, which end with it; none when it cannot be read.
std::optional<Index> read_index(const InputFile& file, std::span<const Block> blocks);
/// The index, found from the footer alone; none when either is missing or damaged.
std::optional<Index> find_index(const InputFile& file);
/// What is wrong when the index does not say what a scan found.
std::optional<Problem> problem_of_index(const InputFile& file, std::span<const Block> blocks);

}  // namespace steptape::storage
