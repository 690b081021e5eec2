#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::tools {

struct RoleTotal {
  trace::Role role;
  std::uint64_t buffers = 0;
  std::uint64_t bytes = 0;
};

/// A tensor that the step reads and nobody tracks: it travels with the file.
struct Constant {
  std::string path;  ///< empty where the host made it inside the step
  std::uint64_t bytes = 0;
  bool is_kept = false;                  ///< whether the file holds its bytes
  trace::Index first_op = trace::kNone;  ///< the first op that reads it
  std::string module;                    ///< of that op, or empty
  std::string scope;                     ///< of that op, or empty
};

/// What a person wants to know of a recording first.
struct Summary {
  std::uint64_t backward_ops = 0;
  std::uint64_t bytes = 0;       ///< of all buffers
  std::vector<RoleTotal> roles;  ///< those that occur
  std::vector<const trace::Tracked*> parameters;
  std::uint64_t elements = 0;       ///< of all parameters
  std::vector<Constant> constants;  ///< largest first
};

/// The summary refers to `recording`, which must outlive it.
Summary summarize(const trace::Recording& recording);
std::uint64_t bytes_of_state(const trace::Trace& trace);

}  // namespace steptape::tools
