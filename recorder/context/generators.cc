#include "recorder/context/generators.h"

#include <algorithm>

#include "live/generator_state.h"
#include "live/tensors.h"

namespace steptape::recorder {
namespace {

trace::Digest digest_of_state(const at::Generator& generator) {
  return live::digest_of(live::state_of(generator));
}

}  // namespace

GeneratorWatch::GeneratorWatch(const live::Objects& objects) {
  for (auto& [path, generator] : objects.generators()) {
    const trace::Digest state = digest_of_state(generator);
    watched_.push_back({path, generator, state, {{state, trace::kNone}}});
  }
}

std::string GeneratorWatch::path_of(const at::Generator& generator) const {
  for (const Watched& watched : watched_) {
    if (watched.generator == generator) return watched.path;
  }
  return {};
}

bool GeneratorWatch::watches(const std::string& path) const {
  return std::ranges::find(watched_, path, &Watched::path) != watched_.end();
}

std::optional<trace::Seek> GeneratorWatch::before_draw(const std::string& path, trace::Index op) {
  Watched* watched = find(path);
  return watched == nullptr ? std::nullopt : compare(*watched, op);
}

void GeneratorWatch::after_draw(const std::string& path, trace::Index op) {
  Watched* watched = find(path);
  if (watched == nullptr) return;
  watched->state = digest_of_state(watched->generator);
  watched->earlier.emplace_back(watched->state, op);
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
  const trace::Digest state = digest_of_state(watched.generator);
  if (state == watched.state) return std::nullopt;
  watched.state = state;
  trace::Seek seek{op, watched.path, state, false, trace::kNone};
  const auto same = [&state](const auto& earlier) { return earlier.first == state; };
  const auto found = std::find_if(watched.earlier.rbegin(), watched.earlier.rend(), same);
  if (found != watched.earlier.rend()) {
    seek.is_earlier = true;
    seek.after_op = found->second;
  }
  return seek;
}

}  // namespace steptape::recorder
