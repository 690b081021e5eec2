#include "replayer/runtime/seeks.h"

#include "live/generator_state.h"

namespace steptape::replayer {

Seeks::Seeks(const trace::Recording& recording, std::size_t count,
             const std::function<std::size_t(trace::Index op)>& piece_of,
             const std::function<at::Generator(const std::string&)>& generator)
    : count_(count) {
  for (const trace::Seek& seek : recording.seeks) {
    if (!seek.is_earlier) continue;
    const bool is_at_end = seek.before_op >= recording.ops.size();
    kept_.push_back({generator(seek.generator),
                     seek.after_op == trace::kNone ? kBegin : piece_of(seek.after_op),
                     is_at_end ? count : piece_of(seek.before_op)});
  }
}

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
