#pragma once

#include <optional>
#include <string>

#include "trace/model.h"

namespace steptape::diff {

/// What two recordings of one step are to each other.
enum class Relation {
  kVariants,  ///< a guard tells them apart, or a value that they read decides between them
  kSame,      ///< entered in the same way, and one plan does what both did
  kConflict,  ///< entered in the same way, and they did different things
};

Relation relation_of(const trace::Recording& a, const trace::Recording& b);

/// Why recordings of `a` and `b` cannot be variants of one program's steps, in words: "environment
/// threads: 2 → 4", "step train: model.fc1: torch::nn::LinearImpl → absent". None where they can.
std::optional<std::string> conflict_of(const trace::Trace& a, const trace::Trace& b);

}  // namespace steptape::diff
