#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diff/align/op_keys.h"
#include "diff/op_stream.h"

namespace steptape::diff {

/// In which respect two paired ops differ.
enum class OpAspect : std::uint8_t {
  kOperator,  ///< another overload, or another operator with the same arguments
  kModule,    ///< another module call or phase issued it
  kArgument,  ///< another tensor, or another kind or number of arguments
  kDtype,
  kDevice,
  kShape,
  kLayout,  ///< strides, offset, conjugate, negative and wrapped-number bits
  kScalar,  ///< other bits, or a formula on one side alone
  kWrites,  ///< other writes that the schema does not say
};

std::string_view name_of(OpAspect aspect) noexcept;

struct OpChange {
  OpAspect aspect = OpAspect::kOperator;
  std::string place;     ///< "alpha", "tensors[1]", "result"; empty for the op itself
  std::string expected;  ///< in the first recording
  std::string found;     ///< in the second
  friend bool operator==(const OpChange&, const OpChange&) = default;

  /// "alpha: 1 → 2"
  std::string text() const;
};

/// In what op `x` of `a` and the op `y` that stands for it in `b` differ; empty: they are equal
/// as streams are, with `buffers` standing for each other.
std::vector<OpChange> changes_of(const OpStream& a, trace::Index x, const OpStream& b,
                                 trace::Index y, const BufferPairs& buffers);

}  // namespace steptape::diff
