#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/model.h"

namespace steptape::diff {

/// Who left some bytes.
struct Source {
  trace::Index op = trace::kNone;  ///< kNone: nobody in this step, they lay there when it began
  /// Of an op, which of the tensors that it left: its results, then the arguments that it wrote.
  std::uint32_t place = 0;
  friend bool operator==(const Source&, const Source&) = default;
};

/// A tensor argument whose bits an op looks at.
struct Reading {
  trace::TensorId tensor = trace::kNoTensor;  ///< never kNoTensor
  trace::Index argument = trace::kNone;       ///< of the op
  trace::Index item = trace::kNone;           ///< of that argument, where it is a list
  /// The op that left exactly this tensor, if nothing was written over it since; its `op` is kNone
  /// where there is none.
  Source left;
  std::uint32_t first_source = 0, sources = 0;  ///< in Provenance
  bool has_more_sources = false;                ///< than are kept
};

/// What happened last to the generator that an op draws from.
struct Draw {
  std::string_view generator;  ///< "default"; empty for one that nobody tracks
  trace::Index after =
      trace::kNone;  ///< the op that drew before it, if nobody set the generator since
  const trace::Seek* seek = nullptr;  ///< as what it was set since
};

/// Where the bits come from that each op of a recording looks at. Writes are followed by bytes of
/// buffers, so that views, slices and ops in place count; a write through strides leaves what lies
/// between them. Memory that an op made and nobody wrote has that op as its source.
class Provenance {
 public:
  /// Each write of some bytes of a buffer may add a source to all that read the whole of it: what
  /// is kept must not grow with their product.
  static constexpr std::size_t kMany = std::size_t{1} << 22U;

  /// `recording` must be valid and outlive it.
  explicit Provenance(const trace::Recording& recording);

  const trace::Recording& recording() const { return recording_; }
  /// In the order of arguments and their items.
  std::span<const Reading> readings(trace::Index op) const;
  /// The reading of one argument or item, or null.
  const Reading* reading(trace::Index op, trace::Index argument, trace::Index item) const;
  /// The sources of all bytes between the first and the last of the tensor, in their order; two
  /// neighbours are never equal. Empty for a tensor without elements. Of a recording in which more
  /// than Provenance::kMany would be kept, only the first few of each later reading.
  std::span<const Source> sources(const Reading& reading) const;
  /// Null for an op that draws nothing.
  const Draw* draw(trace::Index op) const;
  /// Whether its results are bits that nobody chose: it makes memory and writes none.
  bool leaves_unwritten(trace::Index op) const { return is_unwritten_[recording_.ops[op].op]; }

 private:
  friend class ProvenanceMaker;

  const trace::Recording& recording_;
  std::vector<Reading> readings_;
  std::vector<std::uint32_t> first_reading_;  ///< by op, and one after the last
  std::vector<Source> sources_;
  std::unordered_map<trace::Index, Draw> draws_;  ///< by op
  std::vector<bool> is_unwritten_;                ///< by operator
};

}  // namespace steptape::diff
