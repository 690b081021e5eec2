#include "tests/storage/sample.h"

#include <algorithm>

#include "storage/trace/writer.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/stream.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

/// Whether some of the items of `whole`, in their order, are those of `found`.
template <typename Item>
bool are_some(const std::vector<Item>& found, const std::vector<Item>& whole) {
  auto next = whole.begin();
  for (const Item& item : found) {
    next = std::find(next, whole.end(), item);
    if (next == whole.end()) return false;
    ++next;
  }
  return true;
}

bool is_part_of_step(const trace::Step& found, const trace::Trace& whole) {
  const trace::Step* const step = whole.find_step(found.name);
  return step != nullptr && (found.place == step->place || found.place.empty()) &&
         are_some(found.recordings, step->recordings);
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

Sample streamed() {
  MemoryFileSystem files;
  const std::vector<Added> added = additions(8);
  StreamWriter writer(kSamplePath, head_of_stream(), {}, files);
  add(writer, added);
  EXPECT_TRUE(writer.finish() && writer.lost() == 0);
  return {"stream", trace_of(added), files.bytes_at(kSamplePath)};
}

}  // namespace

Sample sample(std::string name, trace::Trace trace) {
  MemoryFileSystem files;
  write(trace, kSamplePath, {}, files);
  return {std::move(name), std::move(trace), files.bytes_at(kSamplePath)};
}

std::vector<Sample> samples() {
  return {sample("empty", {}),
          sample("train", test::train_trace()),
          sample("numbers", test::numbers_trace()),
          sample("tensors", trace_of_tensors()),
          streamed(),
          sample("many_steps", trace_of_many_steps())};
}

bool is_part(const trace::Trace& found, const trace::Trace& whole) {
  return found.producer == whole.producer && found.run == whole.run &&
         found.environment == whole.environment && are_some(found.state, whole.state) &&
         std::ranges::all_of(found.steps,
                             [&](const trace::Step& step) { return is_part_of_step(step, whole); });
}

}  // namespace steptape::storage
