#pragma once

#include <string>
#include <vector>

#include "replayer/player/player_state.h"
#include "steptape/player.h"

/// The state of a player as a file of weights, and back.
namespace steptape::replayer {

/// A tensor that a step of the trace tracks.
struct TrackedTensor {
  std::string path;
  std::vector<std::string> aliases;  ///< other paths of the same tensor
  trace::Role role = trace::Role::kParameter;
  bool in_state_dict = true;
  trace::Tensor geometry;
  std::string buffer;  ///< its path in PlayerState
};

/// All that these recordings track but gradients, and what they carry on, each path once.
void add_tracked(const trace::Recording& recording, std::vector<TrackedTensor>& to);

/// On the state's memory, which must hold it.
at::Tensor tensor_of(const PlayerState& state, const TrackedTensor& tracked);

/// See Player::save_weights and Player::load_weights.
void save_weights(const PlayerState& state, const std::vector<TrackedTensor>& tracked,
                  const std::string& path, const WeightsOptions& options);
void load_weights(PlayerState& state, const std::vector<TrackedTensor>& tracked,
                  const std::string& path, const WeightsOptions& options);

}  // namespace steptape::replayer
