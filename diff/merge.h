#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::diff {

/// A recording of one of the traces that were joined.
struct Origin {
  std::size_t trace = 0;
  std::size_t recording = 0;  ///< of the step of that name
  friend bool operator==(const Origin&, const Origin&) = default;
};

/// Where the recordings of a joined step come from.
struct MergedStep {
  std::string name;
  std::vector<Origin> kept;  ///< one for each recording, in order
  /// Left out: another does the same, or is the step's warm-up.
  std::vector<Origin> left_out;
};

struct Merged {
  trace::Trace trace;
  std::vector<MergedStep> steps;  ///< one for each of `trace`
  std::size_t state_of = 0;       ///< the first trace with saved state
  /// Saved by several with different contents, in order; it has what the first of them saved.
  std::vector<std::string> differing;
};

/// Joins traces of one program: steps by name, their recordings one after the other as variants.
/// A step has one warm-up, the first; of recordings that do the same it keeps the one that got
/// furthest. Of what is saved under one path the first stays; of the facts about the run, those
/// on which all agree stay. `names` are what errors call the traces; there is at least one, and all
/// are valid. Throws Error (invalid_argument) where two were made in other environments or by other
/// programs: no one could say which of them a step is to follow.
Merged merge(std::span<const trace::Trace> traces, std::span<const std::string> names);

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
