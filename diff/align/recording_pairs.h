#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace steptape::diff {

/// How two recordings of one step were found to belong together.
enum class PairedBy : std::uint8_t {
  kCall,      ///< of one call of the run, as both counted
  kEntry,     ///< both were entered in the same way: one plan could serve both
  kShapes,    ///< inputs of the same geometry
  kPosition,  ///< they are what is left, in their order
};

std::string_view name_of(PairedBy paired_by) noexcept;

struct RecordingPair {
  std::size_t a = 0;  ///< in Step::recordings of the first step
  std::size_t b = 0;
  PairedBy paired_by = PairedBy::kPosition;
  friend bool operator==(const RecordingPair&, const RecordingPair&) = default;
};

/// Whether the recording is of a call that was recorded besides those that plans are made from: it
/// stands for this call alone, with its numbers.
bool is_besides(const trace::Recording& recording);

/// Those of one call first, whatever they are; then warm-ups with warm-ups and variants with
/// variants. Calls that were recorded besides are paired by call alone, unless nothing but warm-ups
/// would be compared. By `a`; what has no partner is in no pair.
std::vector<RecordingPair> pair_recordings(const trace::Step& a, const trace::Step& b);

}  // namespace steptape::diff
