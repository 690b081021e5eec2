#include "tests/storage/sample.h"

#include <algorithm>

#include "storage/writer.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

template <typename Item>
bool comes_first(const std::vector<Item>& found, const std::vector<Item>& whole) {
  return found.size() <= whole.size() &&
         std::ranges::equal(found, std::span(whole).first(found.size()));
}

bool comes_first(const trace::Step& found, const trace::Step& whole) {
  return found.name == whole.name && found.place == whole.place &&
         comes_first(found.recordings, whole.recordings);
}

trace::Trace trace_of_many_steps() {
  trace::Trace trace = test::train_trace();
  const trace::Recording recording = trace.steps[0].recordings[0];
  trace.steps[0].recordings.push_back(recording);
  trace.steps.push_back({"eval", "eval.cc:1", {}});
  trace.steps.push_back({"numbers", "", test::numbers_trace().steps[0].recordings});
  trace.state.push_back({"model.noise", 0, noise(3000)});
  trace.state.push_back({"model.zeros", 16, std::make_shared<std::vector<std::byte>>(9000)});
  return trace;
}

/// Most of its bytes are those of tensors.
trace::Trace trace_of_tensors() {
  trace::Trace trace = test::train_trace();
  for (std::size_t count : {25'000, 20'000, 10'000}) {
    trace.state.push_back({"noise" + std::to_string(count), 0, noise(count)});
  }
  return trace;
}

}  // namespace

Sample sample(std::string name, trace::Trace trace) {
  MemoryFileSystem files;
  write(trace, kSamplePath, {}, files);
  return {std::move(name), std::move(trace), files.bytes_at(kSamplePath)};
}

std::vector<Sample> samples() {
  return {sample("empty", {}), sample("train", test::train_trace()),
          sample("numbers", test::numbers_trace()), sample("tensors", trace_of_tensors()),
          sample("many_steps", trace_of_many_steps())};
}

bool is_prefix(const trace::Trace& found, const trace::Trace& whole) {
  if (found.producer != whole.producer || found.run != whole.run ||
      found.environment != whole.environment || found.steps.size() > whole.steps.size()) {
    return false;
  }
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    const bool is_last = i + 1 == found.steps.size() && found.state.empty();
    if (is_last ? !comes_first(found.steps[i], whole.steps[i]) : found.steps[i] != whole.steps[i]) {
      return false;
    }
  }
  if (!found.state.empty() && found.steps.size() != whole.steps.size()) return false;
  return comes_first(found.state, whole.state);
}

}  // namespace steptape::storage
