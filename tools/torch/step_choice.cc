#include "tools/torch/step_choice.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <vector>

#include "steptape/error.h"

namespace steptape::tools {

PlayerStep choose_step(Player& player, const std::string& wanted) {
  if (!wanted.empty()) return player.step(wanted);
  const std::vector<std::string> names = player.steps();
  if (names.size() == 1) return player.step(names.front());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the trace holds several steps; choose one with --step: {}",
                          fmt::join(names, ", ")));
}

void use_recorded_threads(const PlayerStep& step) {
  if (const std::string threads = step.ambient("threads"); !threads.empty()) {
    at::set_num_threads(std::stoi(threads));
  }
}

}  // namespace steptape::tools
