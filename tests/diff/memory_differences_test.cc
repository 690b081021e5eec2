#include <gmock/gmock.h>

#include "diff/sections.h"
#include "tests/trace/made_up.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Two modules of two ops, each op taking what the one before it gave: 16 bytes each.
trace::Recording chain() {
  trace::Recording recording;
  recording.operators = {{"aten::sin", "", "aten::sin(Tensor self) -> Tensor"}};
  recording.modules = {{"model", "Net", true, {}, {}}, {"model.fc1", "Layer", true, {}, {}}};
  for (trace::BufferId i = 0; i < 5; ++i) {
    trace::Buffer& buffer = recording.buffers.emplace_back();
    buffer.bytes = 16;
    buffer.role = i == 0   ? trace::Role::kInput
                  : i == 4 ? trace::Role::kResult
                           : trace::Role::kTemporary;
    recording.tensors.push_back({i, trace::DType::kFloat32, {4}, {1}, 0, false, false, false});
    if (i == 0) continue;
    trace::Op& op = recording.ops.emplace_back();
    op.op = 0;
    op.module = i < 3 ? 0 : 1;
    op.call = 1;
    op.inputs = {{trace::TensorRef{i - 1}}};
    op.outputs = {{trace::TensorRef{i}}};
  }
  return recording;
}

std::vector<std::string> words(const trace::Recording& a, const trace::Recording& b) {
  std::vector<std::string> words;
  for (const trace::Finding& finding : memory_differences(a, b)) words.push_back(finding.text());
  return words;
}

TEST(MemoryDifferencesTest, EqualRecordingsHaveNone) {
  EXPECT_THAT(memory_differences(chain(), chain()), IsEmpty());
  const trace::Recording recording = test::make_up({.seed = 2});
  EXPECT_THAT(memory_differences(recording, recording), IsEmpty());
}

TEST(MemoryDifferencesTest, ABiggerBufferIsToldOfItsModuleAndOfTheStep) {
  trace::Recording other = chain();
  other.buffers[1].bytes = 20;
  EXPECT_THAT(words(chain(), other),
              ElementsAre("step: 64 bytes made, 32 at once → 68 bytes made, 36 at once",
                          "model: 32 bytes made, 32 at once → 36 bytes made, 36 at once"));
}

TEST(MemoryDifferencesTest, ABufferThatLivesLongerIsTold) {
  trace::Recording other = chain();
  other.ops[3].inputs.push_back({trace::TensorRef{1}});
  EXPECT_THAT(words(chain(), other), ElementsAre("step: 64 bytes made, 32 at once → 64 bytes made, "
                                                 "48 at once"));
}

TEST(MemoryDifferencesTest, AModuleThatOneSideLacksIsTold) {
  trace::Recording other = chain();
  other.ops[2].module = other.ops[3].module = trace::kNone;
  other.ops[2].call = other.ops[3].call = 0;
  EXPECT_THAT(words(chain(), other), ElementsAre("model.fc1: 32 bytes made, 32 at once → absent",
                                                 "no module: absent → 32 bytes made, 32 at once"));
}

}  // namespace
}  // namespace steptape::diff
