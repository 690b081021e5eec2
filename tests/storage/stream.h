#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "storage/trace/stream_writer.h"
#include "tests/trace/samples.h"

namespace steptape::storage {

inline constexpr const char* kPartPath = "/traces/run.tape.part";

/// What a training gives a StreamWriter.
struct Added {
  std::string step;
  trace::Recording recording;
};

/// Bytes of their own, as each recording captures them.
inline void copy_contents(trace::Recording& recording) {
  for (trace::Buffer& buffer : recording.buffers) {
    if (buffer.content) {
      buffer.content = std::make_shared<const std::vector<std::byte>>(*buffer.content);
    }
  }
}

/// Recording number `call` of a training whose third call each is of another step.
inline Added addition(std::uint64_t call) {
  static const trace::Recording train = test::train_recording();
  static const trace::Recording numbers = test::numbers_trace().steps[0].recordings[0];
  const bool is_train = call % 3 != 0;
  Added added{is_train ? "train" : "eval", is_train ? train : numbers};
  copy_contents(added.recording);
  added.recording.call = call;
  added.recording.op_digests.clear();
  for (std::uint64_t op = 0; call % 2 == 0 && op < added.recording.ops.size(); ++op) {
    added.recording.op_digests.push_back({call * 0x9e3779b97f4a7c15, op});
  }
  added.recording.op_ns.clear();
  for (std::uint32_t op = 0; call % 3 != 1 && op < added.recording.ops.size(); ++op) {
    added.recording.op_ns.push_back(static_cast<std::uint32_t>(call) * 100 + op);
  }
  if (call % 4 == 0) added.recording.scopes.push_back("call " + std::to_string(call));
  return added;
}

/// Calls 1 to `count`.
inline std::vector<Added> additions(std::uint64_t count) {
  std::vector<Added> added;
  for (std::uint64_t call = 1; call <= count; ++call) added.push_back(addition(call));
  return added;
}

inline std::string place_of(const std::string& step) { return step + ".cc:1"; }

inline void add(StreamWriter& writer, const Added& added) {
  writer.add(added.step, place_of(added.step), added.recording);
}
inline void add(StreamWriter& writer, const std::vector<Added>& added) {
  for (const Added& one : added) add(writer, one);
}

inline trace::Trace head_of_stream() {
  trace::Trace head = test::train_trace();
  head.steps.clear();
  head.state.clear();
  return head;
}

/// What the file holds when all was added.
inline trace::Trace trace_of(const std::vector<Added>& added) {
  trace::Trace trace = head_of_stream();
  for (const auto& [name, recording] : added) {
    auto step = std::ranges::find(trace.steps, name, &trace::Step::name);
    if (step == trace.steps.end()) {
      step = trace.steps.insert(step, trace::Step{name, place_of(name), {}});
    }
    step->recordings.push_back(recording);
  }
  return trace;
}

}  // namespace steptape::storage
