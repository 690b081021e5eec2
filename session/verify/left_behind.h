#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trace/digest.h"
#include "trace/model.h"

namespace steptape::session {

/// The first thing that a plan and the eager step left with other bits.
struct Divergence {
  std::string path;  ///< "results[0]", "model.fc1.weight", "generator.default"
  std::string text;  ///< both digests
  /// The first op that gave another result, or that the other way did not take; -1: none was found.
  std::int64_t op_index = -1;
  std::string op = {};
  /// The op leaves other bits each time the plan runs: it may do so in the eager step, too.
  bool is_by_chance = false;
};

/// What one way of running a step left behind; nothing stands for what is compared elsewhere.
struct LeftBehind {
  std::vector<std::optional<trace::Digest>> results;
  std::vector<double> numbers;
  std::vector<std::optional<trace::Digest>> gradients;
  std::vector<trace::Digest> written;
  std::vector<trace::Digest> generators;
};

/// Where the two differ first. `written` looks at the written buffer of this position.
std::optional<Divergence> first_difference(
    const LeftBehind& plan, const LeftBehind& eager, const trace::Recording& recording,
    const std::function<std::optional<Divergence>(std::size_t)>& written);

/// A divergence of two digests.
Divergence digests_differ(std::string path, const std::optional<trace::Digest>& plan,
                          const std::optional<trace::Digest>& eager);

}  // namespace steptape::session
