#pragma once

#include <unordered_map>

#include "trace/model.h"

namespace steptape::trace {

/// Digests of contents that buffers share, each taken once. The contents must outlive it.
class KnownDigests {
 public:
  const Digest& of(const Blob& content) {
    const auto [known, is_new] = known_.try_emplace(content.get());
    if (is_new) known->second = digest_of(*content);
    return known->second;
  }

 private:
  std::unordered_map<const void*, Digest> known_;
};

}  // namespace steptape::trace
