#include "guards/window_guard.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "guards/entry.h"
#include "guards/mismatch.h"
#include "steptape/error.h"

namespace steptape::guards {

WindowGuard::WindowGuard(const trace::Recording& recording,
                         const std::vector<trace::BufferId>& bound) {
  const std::vector<std::int64_t> position = positions_of(recording, bound);
  for (const trace::Window& window : recording.windows) {
    trace::WindowOfRun of_run(recording, window);
    const std::int64_t own = position[window.buffer], base = position[of_run.base()];
    if (own < 0) continue;  // nothing of the plan uses it
    if (base < 0) {
      throw Error(ErrorCode::kDataLoss,
                  recording.buffers[window.buffer].path + " lies in memory that the step makes");
    }
    const trace::TensorId given =
        std::get<trace::TensorRef>(recording.ops[window.op].outputs[0].data).id;
    windows_.push_back({of_run, &recording.buffers[window.buffer], static_cast<std::size_t>(own),
                        static_cast<std::size_t>(base), recording.tensors[given].numel() == 1});
  }
}

Verdict WindowGuard::place(std::span<const double> leaves, std::span<void*> memory,
                           Remainders* remainders, std::size_t first) const {
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const Window& window = windows_[i];
    const std::optional<std::int64_t> offset = window.of_run.offset(leaves);
    if (!offset) {
      return failed(GuardKind::kShape, window.buffer->path, "of the recorded sizes",
                    "of others, or beyond the end");
    }
    auto* address = static_cast<std::byte*>(memory[window.base]) + *offset;
    memory[window.position] = address;
    if (window.is_one_element) continue;  // nothing is done to it in another order elsewhere
    if (remainders != nullptr && window.buffer->device.kind == trace::DeviceKind::kCpu) {
      remainders->note(first + i,
                       static_cast<std::uint8_t>(reinterpret_cast<std::uintptr_t>(address) % 64));
    } else if (Verdict verdict = alignment_mismatch(window.buffer->path, *window.buffer, address);
               !verdict) {
      return verdict;
    }
  }
  return {};
}

std::vector<trace::BufferId> with_windows(const trace::Recording& recording,
                                          std::vector<trace::BufferId> written) {
  for (auto window = recording.windows.rbegin(); window != recording.windows.rend(); ++window) {
    const trace::BufferId base = trace::WindowOfRun(recording, *window).base();
    const bool is_written = std::ranges::find(written, window->buffer) != written.end();
    if (is_written && std::ranges::find(written, base) == written.end()) written.push_back(base);
  }
  return written;
}

}  // namespace steptape::guards
