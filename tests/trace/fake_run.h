#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "trace/model.h"

/// Runs a recording as no machine would: what an op leaves is a hash of its operator, its scalars
/// and the bytes of its arguments, computed in real memory through real strides. Equal arguments
/// leave equal bytes, and any other bit leaves others.
namespace steptape::test {

struct FakeRun {
  /// What buffers of these paths hold at entry is another than what the path says.
  std::map<std::string, std::uint64_t> entered = {};
  /// These ops leave one bit that is another.
  std::set<trace::Index> flipped = {};
};

/// Fills in Recording::op_digests, and Buffer::digest of what no op made.
void run_fake(trace::Recording& recording, const FakeRun& how = {});

}  // namespace steptape::test
