#include "replayer/planner/analysis/refusals.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "replayer/runtime/backends.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

trace::Recording plain() {
  return *recorded([](const auto& x) -> std::vector<at::Tensor> { return {x[0].mm(x[0])}; },
                   {at::rand({4, 4})});
}

RefusalCode only_code(const trace::Recording& recording) {
  const std::vector<Refusal> refusals = replayer::refusals_of(recording, replayer::why_no_backend);
  EXPECT_EQ(refusals.size(), 1U);
  return refusals.empty() ? RefusalCode::kRecordingFailed : refusals[0].code;
}

TEST(AnalysisTest, AcceptsAPlainRecording) {
  EXPECT_TRUE(replayer::refusals_of(plain(), replayer::why_no_backend).empty());
}

TEST(AnalysisTest, RefusesAnOperatorThatIsNotHere) {
  trace::Recording recording = plain();
  recording.operators[0].overload = "no_such_overload";
  EXPECT_EQ(only_code(recording), RefusalCode::kUnreplayableOp);
}

TEST(AnalysisTest, RefusesAnotherSchema) {
  trace::Recording recording = plain();
  recording.operators[0].schema = "aten::mm(Tensor self) -> Tensor";
  EXPECT_EQ(only_code(recording), RefusalCode::kUnreplayableOp);
}

TEST(AnalysisTest, RefusesOpsThatTouchFiles) {
  trace::Recording recording = plain();
  recording.operators[0] = {
      "aten::from_file", "",
      toString(c10::Dispatcher::singleton().findSchemaOrThrow("aten::from_file", "").schema())};
  EXPECT_EQ(only_code(recording), RefusalCode::kUnreplayableOp);
}

TEST(AnalysisTest, RefusesAnOpThatReturnsWhatItWasGiven) {
  trace::Recording recording = plain();
  recording.ops[0].outputs = {recording.ops[0].inputs[0]};
  EXPECT_EQ(only_code(recording), RefusalCode::kUnreplayableOp);
}

TEST(AnalysisTest, RefusesOtherDevices) {
  trace::Recording recording = plain();
  recording.buffers[0].device = {trace::DeviceKind::kCuda, 0};
  EXPECT_EQ(only_code(recording), RefusalCode::kDevice);
}

TEST(AnalysisTest, PassesOnWhatTheRecorderSaw) {
  trace::Recording recording = plain();
  Refusal seen;
  seen.code = RefusalCode::kHostRead;
  recording.refusals.push_back(seen);
  EXPECT_EQ(only_code(recording), RefusalCode::kHostRead);
}

}  // namespace
}  // namespace steptape::tests
