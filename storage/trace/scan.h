#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steptape/error.h"
#include "storage/files/input_file.h"
#include "storage/trace/block.h"
#include "storage/trace/reader.h"

namespace steptape::storage {

struct Problem {
  ErrorCode code;
  std::string message;
};

/// What reading the header of every block found. Payloads were not looked at.
struct Scan {
  std::optional<FormatVersion> format;  ///< none when the file's header is missing or damaged
  std::vector<Block> blocks;            ///< in order; each lies within the file
  std::uint64_t end = 0;                ///< after the last of them
  bool has_index = false;
  std::optional<Problem> problem;  ///< what ended the scan before the end of a whole file
};

Scan scan(const InputFile& file);

/// The block that the header at `offset` announces, which must be number `sequence`; otherwise
/// fills in `problem`.
std::optional<Block> block_at(const InputFile& file, std::uint64_t offset, std::uint64_t sequence,
                              std::optional<Problem>& problem);

}  // namespace steptape::storage
