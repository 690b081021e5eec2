#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

enum class StepPart : std::uint8_t { kForward, kBackward, kUpdate };

/// "forward", "backward", "update"
std::string_view name_of(StepPart part) noexcept;

/// One for each of Recording::ops. Backward ops are those that the recording calls so. Of the
/// others, ops in the scope of an optimizer's step are the update. A recording without such scopes
/// has its update from the first op that no module issued and that writes a parameter or optimizer
/// state up to the last one.
std::vector<StepPart> parts_of(const trace::Recording& recording);

}  // namespace steptape::tools
