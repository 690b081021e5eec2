#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "steptape/player.h"

namespace steptape::tools {

/// What the commands that play a step have in common.
struct PlayOptions {
  std::string file, step, inputs = "random";
  std::uint64_t steps = 1;
  std::uint64_t seed = 0;
  bool json = false;
  bool any_environment = false;
};

/// All but --any-environment and --json; `steps` says what --steps is.
void add_options(CLI::App& command, PlayOptions& options, const std::string& steps);
Player load_player(const PlayOptions& options);

/// Where a step's inputs come from: a file, or made up.
class Inputs {
 public:
  /// `source` is "random", or a file that torch.save (a tensor, or a list or tuple of tensors) or
  /// C++ torch::save (a vector of tensors) wrote. Made-up floats are normal, integers lie in the
  /// range seen while recording, all drawn from a generator seeded with `seed`. Throws Error (io,
  /// data_loss).
  Inputs(const std::string& source, const std::vector<TensorSpec>& specs, std::uint64_t seed);

  /// The inputs of the next step; those of a file are the same in each.
  std::vector<at::Tensor> next();

 private:
  at::Tensor made_up(const TensorSpec& spec);

  std::vector<TensorSpec> specs_;
  std::vector<at::Tensor> loaded_;
  bool random_;
  at::Generator generator_;
};

/// The step of this name, or the only one. Throws Error (invalid_argument) that lists the steps.
PlayerStep choose_step(Player& player, const std::string& wanted);

/// As many threads as the step was recorded with: its guards ask for them.
void use_recorded_threads(const PlayerStep& step);

}  // namespace steptape::tools
