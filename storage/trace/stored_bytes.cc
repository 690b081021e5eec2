#include "storage/trace/stored_bytes.h"

namespace steptape::storage {

StoredBytes::Found StoredBytes::use(const trace::Blob& blob, Uses& uses) {
  const auto by_pointer = digests_.find(blob.get());
  const trace::Digest digest =
      by_pointer != digests_.end() ? by_pointer->second : trace::digest_of(*blob);
  const auto [known, is_new] =
      known_.try_emplace({digest.low, digest.high}, Entry{blob, next_id_, 0});
  Entry& entry = known->second;
  if (entry.blob != blob && *entry.blob != *blob) return {next_id_++, true};
  if (is_new) {
    digests_.emplace(blob.get(), digest);
    ++next_id_;
  }
  ++entry.uses;
  uses.push_back(digest);
  return {entry.id, is_new};
}

void StoredBytes::release(const Uses& uses) {
  for (const trace::Digest& digest : uses) {
    const auto known = known_.find({digest.low, digest.high});
    if (--known->second.uses > 0) continue;
    digests_.erase(known->second.blob.get());
    known_.erase(known);
  }
}

}  // namespace steptape::storage
