#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "steptape/player.h"
#include "storage/trace/snapshot_folder.h"

namespace steptape::replayer {

/// When snapshots of a player are due, and where they are.
class Snapshots {
 public:
  /// Makes the folder and takes it; `runs` as in `path_of`. Throws Error: (invalid_argument);
  /// (failed_precondition) when another player has it, or when it holds a whole snapshot of more
  /// runs; (io).
  Snapshots(const SnapshotOptions& options, std::uint64_t runs);

  /// A step wrote state; whether a snapshot is due for it.
  bool is_due_after_step();
  /// Where the snapshot of a state belongs on which steps ran so often in all. One of the same
  /// number is replaced.
  std::string path_of(std::uint64_t runs) const { return folder_.path_of(runs).string(); }
  /// It was written: the next one is due from now on, and the oldest go.
  void written(std::uint64_t runs);

 private:
  SnapshotOptions options_;
  storage::SnapshotFolder folder_;
  std::uint64_t steps_ = 0;  ///< since the last one
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace steptape::replayer
