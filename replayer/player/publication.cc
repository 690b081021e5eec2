#include "replayer/player/publication.h"

#include "live/contents.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer {

void wait_for(const c10::Storage& storage) {
  if (storage.nbytes() != 0) live::bytes_on_host(storage.data(), storage.device(), 1);
}

std::shared_ptr<Publication::Version> Publication::unread() {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Version>& version : versions_) {
    // readers come to the newest alone, and leave a version under the mutex
    if (version != newest_ && version.use_count() == 1) return version;
  }
  return nullptr;
}

void Publication::publish(const Memory& from, std::set<std::string> gradients) {
  std::shared_ptr<Version> version = unread();
  const bool is_new = version == nullptr;
  if (is_new) {
    version = std::make_shared<Version>();
    for (const std::string& path : paths_) {
      version->memory.emplace(path, allocate_like(from.at(path)));
    }
  }
  const c10::Storage* last = nullptr;
  for (const auto& [path, storage] : version->memory) {
    const c10::Storage& source = from.at(path);
    live::copy_bytes(storage.mutable_data(), storage.device(), source.data(), source.device(),
                     source.nbytes());
    if (!storage.device().is_cpu()) last = &storage;
  }
  if (last != nullptr) wait_for(*last);
  version->gradients = std::move(gradients);
  const std::lock_guard lock(mutex_);
  if (is_new) versions_.push_back(version);
  newest_ = std::move(version);
  version_.fetch_add(1);
}

bool Publication::renew(Reading& reading) {
  if (reading.version == version_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  reading.from = newest_;
  reading.version = version_.load(std::memory_order_relaxed);
  return true;
}

void Publication::end(Reading& reading) {
  const std::lock_guard lock(mutex_);
  reading = {};
}

std::uint64_t Publication::bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const std::shared_ptr<Version>& version : versions_) {
    for (const auto& [path, storage] : version->memory) bytes += storage.nbytes();
  }
  return bytes;
}

}  // namespace steptape::replayer
