#include "replayer/run/seeks.h"

#include <algorithm>

#include "live/generator_state.h"

namespace steptape::replayer {

Seeks::Seeks(const trace::Recording& recording, const std::vector<Call>& calls,
             const std::function<at::Generator(const std::string&)>& generator)
    : calls_(calls.size()) {
  const auto call_of = [&calls](trace::Index op) {
    const auto found = std::ranges::find(calls, op, &Call::op);
    return static_cast<std::size_t>(found - calls.begin());
  };
  for (const trace::Seek& seek : recording.seeks) {
    if (!seek.is_earlier) continue;
    kept_.push_back({generator(seek.generator),
                     seek.after_op == trace::kNone ? kBegin : call_of(seek.after_op),
                     call_of(seek.before_op)});
  }
}

void Seeks::begin() { keep(kBegin); }
void Seeks::before(std::size_t call) { set(call); }
void Seeks::after(std::size_t call) { keep(call); }
void Seeks::end() { set(calls_); }

void Seeks::keep(std::size_t from) {
  for (Kept& kept : kept_) {
    if (kept.from == from) kept.state = live::state_of(kept.generator);
  }
}

void Seeks::set(std::size_t to) {
  for (Kept& kept : kept_) {
    if (kept.to == to) live::set_state(kept.generator, kept.state);
  }
}

}  // namespace steptape::replayer
