#pragma once

#include <cstdint>
#include <unordered_map>

#include "live/objects.h"
#include "trace/model.h"

namespace steptape::recorder {

/// Tells which module an op belongs to: the one whose parameter or module buffer it reads, or, for
/// a backward op, the one of the forward op with its sequence number.
class ModuleWatch {
 public:
  explicit ModuleWatch(trace::Recording& recording) : recording_(recording) {}

  /// Fills Recording::modules.
  void enter(const live::Snapshot& snapshot);
  /// The buffer of the parameter or module buffer `path` belongs to the module that holds it.
  void own(trace::BufferId buffer, const std::string& path);

  trace::Index of_path(const std::string& path) const;
  trace::Index owner(trace::BufferId buffer) const;
  trace::Index of_sequence(std::int64_t sequence) const;
  /// Op `index` of the forward pass belongs to `module`.
  void reach(trace::Index module, trace::Index index, std::int64_t sequence);

 private:
  trace::Recording& recording_;
  std::unordered_map<std::string, trace::Index> by_path_;
  std::unordered_map<trace::BufferId, trace::Index> by_buffer_;
  std::unordered_map<std::int64_t, trace::Index> by_sequence_;
  std::vector<bool> reached_;
};

}  // namespace steptape::recorder
