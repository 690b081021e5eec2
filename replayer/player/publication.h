#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace steptape::replayer {

/// Waits for what the current stream was given for its device. It is not of the host.
void wait_for(const c10::Storage& storage);

/// Memory that one thread writes and others read, each version of it whole. A version is written
/// while nobody reads it, and not again before the last reader has taken up a newer one.
class Publication {
 public:
  using Memory = std::map<std::string, c10::Storage>;  ///< by path of the buffer
  struct Version {
    Memory memory;
    std::set<std::string>
        gradients;  ///< paths of those that were there; readers have no bytes of them
  };

  /// What a reader has.
  struct Reading {
    std::shared_ptr<const Version> from;
    std::uint64_t version = 0;  ///< 0: none yet
  };

  /// Of the buffers with these paths.
  explicit Publication(std::set<std::string> paths) : paths_(std::move(paths)) {}

  /// Copies `from`, which has all of them and gradients besides, into a version that nobody reads,
  /// or a new one. One thread at a time. Throws c10::Error when memory is short; nothing is
  /// published then.
  void publish(const Memory& from, std::set<std::string> gradients);
  /// Exchanges what `reading` has for the newest. False where that is the same.
  bool renew(Reading& reading);
  /// Its memory may be written again.
  void end(Reading& reading);

  /// Of all versions there are.
  std::uint64_t bytes() const;

 private:
  std::shared_ptr<Version> unread();

  const std::set<std::string> paths_;
  mutable std::mutex mutex_;                        ///< of all below
  std::vector<std::shared_ptr<Version>> versions_;  ///< the newest among them
  std::shared_ptr<Version> newest_;
  std::atomic<std::uint64_t> version_ = 0;  ///< of the newest; written under the mutex
};

}  // namespace steptape::replayer
