#include "recorder/generators.h"

#include <mutex>

#include "live/tensors.h"

namespace steptape::recorder {
namespace {

trace::Digest state_of(at::Generator& generator) {
  std::lock_guard lock(generator.mutex());
  return live::digest_of(generator.get_state());
}

}  // namespace

GeneratorWatch::GeneratorWatch(const live::Objects& objects) {
  for (auto& [path, generator] : objects.generators()) {
    watched_.push_back({path, generator, state_of(generator)});
  }
}

std::string GeneratorWatch::path_of(const std::optional<at::Generator>& argument) const {
  if (!argument || !argument->defined()) return "default";
  for (const Watched& watched : watched_) {
    if (watched.generator == *argument) return watched.path;
  }
  return {};
}

std::optional<trace::Seek> GeneratorWatch::before_draw(const std::string& path, trace::Index op) {
  Watched* watched = find(path);
  return watched == nullptr ? std::nullopt : compare(*watched, op);
}

void GeneratorWatch::after_draw(const std::string& path) {
  if (Watched* watched = find(path)) watched->state = state_of(watched->generator);
}

std::vector<trace::Seek> GeneratorWatch::at_end(trace::Index ops) {
  std::vector<trace::Seek> seeks;
  for (Watched& watched : watched_) {
    if (auto seek = compare(watched, ops)) seeks.push_back(std::move(*seek));
  }
  return seeks;
}

GeneratorWatch::Watched* GeneratorWatch::find(const std::string& path) {
  for (Watched& watched : watched_) {
    if (watched.path == path) return &watched;
  }
  return nullptr;
}

std::optional<trace::Seek> GeneratorWatch::compare(Watched& watched, trace::Index op) {
  const trace::Digest state = state_of(watched.generator);
  if (state == watched.state) return std::nullopt;
  watched.state = state;
  return trace::Seek{op, watched.path, state};
}

}  // namespace steptape::recorder
