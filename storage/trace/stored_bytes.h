#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/model.h"

namespace steptape::storage {

/// Which bytes a file holds already, so that equal ones are written once: found by their digest,
/// and compared. It keeps them in memory until they are released.
class StoredBytes {
 public:
  struct Found {
    std::uint64_t id = 0;
    bool is_new = false;
  };
  /// What a part of the trace refers to.
  using Uses = std::vector<trace::Digest>;

  /// The id of the bytes; adds to `uses`.
  Found use(const trace::Blob& blob, Uses& uses);
  /// Forgets the bytes that nothing else uses.
  void release(const Uses& uses);

 private:
  struct Entry {
    trace::Blob blob;
    std::uint64_t id = 0;
    std::size_t uses = 0;
  };

  std::map<std::pair<std::uint64_t, std::uint64_t>, Entry> known_;  ///< by digest
  std::unordered_map<const void*, trace::Digest> digests_;          ///< of the blobs in `known_`
  std::uint64_t next_id_ = 0;
};

}  // namespace steptape::storage
