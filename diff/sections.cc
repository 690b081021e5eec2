#include "diff/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace steptape::diff {

std::vector<Lifetime> lifetimes_of(const trace::Recording& recording) {
  std::vector<Lifetime> lifetimes(recording.buffers.size());
  for (trace::Index i = 0; i < recording.ops.size(); ++i) {
    const auto use = [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      Lifetime& lifetime = lifetimes[recording.tensors[id].buffer];
      if (lifetime.first == trace::kNone) lifetime.first = i;
      lifetime.last = i;
    };
    for (const trace::Value& value : recording.ops[i].inputs) for_each_tensor(value, use);
    for (const trace::Value& value : recording.ops[i].outputs) for_each_tensor(value, use);
  }
  return lifetimes;
}

namespace {

/// Bytes that come and go.
class Memory {
 public:
  void come(std::uint64_t bytes) {
    made_ += bytes;
    live_ += bytes;
    most_ = std::max(most_, live_);
  }
  void go(std::uint64_t bytes) { live_ -= bytes; }
  std::string words() const { return fmt::format("{} bytes made, {} at once", made_, most_); }

 private:
  std::uint64_t made_ = 0;
  std::uint64_t live_ = 0;
  std::uint64_t most_ = 0;
};

class MemoryByModule {
 public:
  explicit MemoryByModule(const trace::Recording& recording) : recording_(recording) {}

  std::vector<trace::Property> take() {
    find_lives();
    for (trace::Index op = 0; op < recording_.ops.size(); ++op) {
      for (const trace::BufferId buffer : born_[op]) come(op, buffer);
      for (const trace::BufferId buffer : dead_[op]) go(buffer);
    }
    std::vector<trace::Property> properties = {{"step", "step", step_.words()}};
    for (const auto& [module, memory] : modules_) {
      const std::string path =
          module == trace::kNone ? "no module" : recording_.module_path(module);
      properties.push_back({path, path, memory.words()});
    }
    return properties;
  }

 private:
  void find_lives() {
    const std::vector<Lifetime> lifetimes = lifetimes_of(recording_);
    born_.resize(recording_.ops.size());
    dead_.resize(recording_.ops.size());
    for (trace::BufferId buffer = 0; buffer < lifetimes.size(); ++buffer) {
      const Lifetime& life = lifetimes[buffer];
      if (life.first == trace::kNone || !is_made_by(life.first, buffer)) continue;
      born_[life.first].push_back(buffer);
      if (recording_.buffers[buffer].role == trace::Role::kTemporary)
        dead_[life.last].push_back(buffer);
    }
  }

  bool is_made_by(trace::Index op, trace::BufferId buffer) const {
    bool is_given = false;
    for (const trace::Value& input : recording_.ops[op].inputs) {
      for_each_tensor(input, [&](trace::TensorId id) {
        is_given = is_given || (id != trace::kNoTensor && recording_.tensors[id].buffer == buffer);
      });
    }
    return !is_given;
  }

  void come(trace::Index op, trace::BufferId buffer) {
    const trace::Index module = recording_.ops[op].module;
    const auto [found, is_new] = positions_.try_emplace(module, modules_.size());
    if (is_new) modules_.emplace_back(module, Memory());
    makers_[buffer] = found->second;
    modules_[found->second].second.come(recording_.buffers[buffer].bytes);
    step_.come(recording_.buffers[buffer].bytes);
  }

  void go(trace::BufferId buffer) {
    modules_[makers_.at(buffer)].second.go(recording_.buffers[buffer].bytes);
    step_.go(recording_.buffers[buffer].bytes);
  }

  const trace::Recording& recording_;
  std::vector<std::vector<trace::BufferId>> born_, dead_;  ///< by op
  Memory step_;
  std::vector<std::pair<trace::Index, Memory>> modules_;     ///< as ops meet them
  std::unordered_map<trace::Index, std::size_t> positions_;  ///< of modules
  std::unordered_map<trace::BufferId, std::size_t> makers_;  ///< positions of modules
};

}  // namespace

std::vector<trace::Finding> memory_differences(const trace::Recording& a,
                                               const trace::Recording& b) {
  return differences(MemoryByModule(a).take(), MemoryByModule(b).take());
}

}  // namespace steptape::diff
