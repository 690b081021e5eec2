#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diff/align/alignment.h"
#include "diff/numerics/provenance.h"
#include "diff/op_stream.h"

namespace steptape::diff {

/// Why an op left other bits than its partner did.
enum class NumericStatus : std::uint8_t {
  kOrigin,    ///< whatever it takes is equal: it begins here
  kReceiver,  ///< something it takes differs
  kUnknown,   ///< nothing that it takes is known to differ, but not all of it is known
};

std::string_view name_of(NumericStatus status) noexcept;

enum class InputKind : std::uint8_t {
  kNone,       ///< nothing to name: all inputs are equal
  kTensor,     ///< the bits of a tensor, or its dtype and sizes
  kScalar,     ///< a host number, or anything else that is not a tensor
  kGenerator,  ///< the state of a generator
};

/// The first input of an op that differs, or, where none does, the first that is not known.
struct NumericInput {
  InputKind kind = InputKind::kNone;
  trace::Index argument = trace::kNone;
  trace::Index item = trace::kNone;  ///< of the argument, where it is a list
  Source a, b;                       ///< of a tensor: who left the bytes in which they differ
  friend bool operator==(const NumericInput&, const NumericInput&) = default;
};

/// A pair of ops that left other bits.
struct NumericOp {
  trace::Index a = trace::kNone;
  trace::Index b = trace::kNone;
  NumericStatus status = NumericStatus::kOrigin;
  NumericInput input;
  bool is_noisy = false;  ///< in a control they differ too
  friend bool operator==(const NumericOp&, const NumericOp&) = default;
};

/// A buffer that held other bits when the step began.
struct EnteredBuffer {
  trace::BufferId a = trace::kNone;
  trace::BufferId b = trace::kNone;
  bool is_noisy = false;
  friend bool operator==(const EnteredBuffer&, const EnteredBuffer&) = default;
};

/// What differs between two runs of one program, so that it says nothing about another.
struct NumericNoise {
  std::set<trace::Index> ops;
  std::set<std::string> entered;  ///< paths of buffers
};

/// In which bits two recordings of one call differ, op by op. An op counts by what it left: its
/// results and the arguments that it wrote, together.
struct NumericDifferences {
  std::string not_compared;  ///< why not; empty where they were compared
  std::size_t compared = 0;  ///< pairs of ops
  /// Named ones alone: of constants, `constants` tells.
  std::vector<EnteredBuffer> entered;
  std::vector<NumericOp> ops;  ///< by `a`

  bool is_compared() const noexcept { return not_compared.empty(); }
  /// Ops and buffers that differ, noise left out.
  std::size_t count() const noexcept;
  /// Ops of this status that are not noise.
  std::size_t count(NumericStatus status) const noexcept;
  std::size_t noisy() const noexcept;
  /// The first origin, or where there is none the first op that differs, noise left out; or null.
  const NumericOp* first() const noexcept;
  /// What to take for noise when `a` is compared with another recording.
  NumericNoise as_noise(const trace::Recording& a) const;
  /// From here on, this is noise too.
  void mark(const NumericNoise& noise, const trace::Recording& a);
};

/// What is compared has digests of its ops on both sides (Recording::op_digests) and is of one
/// call, where both know of which.
NumericDifferences numeric_differences(const OpStream& a, const OpStream& b,
                                       const Alignment& alignment);

/// How many ops of a module left other bits.
struct NumericStat {
  std::string module;  ///< its path; empty for ops that no module issued
  std::size_t origins = 0, receivers = 0, unknown = 0, noisy = 0;
  friend bool operator==(const NumericStat&, const NumericStat&) = default;
};

/// One for each module with such ops, as the first recording meets them.
std::vector<NumericStat> stats_of(const NumericDifferences& found, const trace::Recording& a);

}  // namespace steptape::diff
