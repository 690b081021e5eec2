#include "recorder/modules.h"

namespace steptape::recorder {
namespace {

template <typename Key>
trace::Index look_up(const std::unordered_map<Key, trace::Index>& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? trace::kNone : found->second;
}

}  // namespace

void ModuleWatch::enter(const live::Snapshot& snapshot) {
  for (const live::ModuleAt& module : snapshot.modules) {
    by_path_.emplace(module.path, static_cast<trace::Index>(recording_.modules.size()));
    recording_.modules.push_back({module.path, module.type(), module.training});
  }
  reached_.assign(recording_.modules.size(), false);
}

void ModuleWatch::own(trace::BufferId buffer, const std::string& path) {
  const auto dot = path.rfind('.');
  if (dot == std::string::npos) return;
  const trace::Index module = look_up(by_path_, path.substr(0, dot));
  if (module != trace::kNone) by_buffer_.try_emplace(buffer, module);
}

trace::Index ModuleWatch::of_path(const std::string& path) const {
  return path.empty() ? trace::kNone : look_up(by_path_, path);
}

trace::Index ModuleWatch::owner(trace::BufferId buffer) const {
  return look_up(by_buffer_, buffer);
}

trace::Index ModuleWatch::of_sequence(std::int64_t sequence) const {
  return sequence < 0 ? trace::kNone : look_up(by_sequence_, sequence);
}

void ModuleWatch::reach(trace::Index module, trace::Index index, std::int64_t sequence) {
  if (sequence >= 0) by_sequence_.try_emplace(sequence, module);
  if (reached_[module]) return;
  reached_[module] = true;
  recording_.module_access.push_back({module, index});
}

}  // namespace steptape::recorder
