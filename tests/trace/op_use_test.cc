#include <gmock/gmock.h>

#include "tests/trace/samples.h"
#include "trace/operators.h"

namespace steptape::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(OpUseTest, AnOpThatWritesNothingReadsItsArguments) {
  const OpUse use = uses_of(test::train_recording())[0];
  EXPECT_THAT(use.reads, ElementsAre(1, 0));
  EXPECT_THAT(use.writes, IsEmpty());
}

TEST(OpUseTest, AnInPlaceOpReadsWhatItWrites) {
  const OpUse use = uses_of(test::train_recording())[2];
  EXPECT_THAT(use.reads, ElementsAre(5, 4));
  EXPECT_THAT(use.writes, ElementsAre(5));
}

TEST(OpUseTest, UndefinedTensorsOfAListAreLeftOutAndEachStandsOnce) {
  const OpUse use = uses_of(test::train_recording())[3];
  EXPECT_THAT(use.reads, ElementsAre(5));
  EXPECT_THAT(use.writes, ElementsAre(5));
}

TEST(OpUseTest, AWriteThatTheSchemaDoesNotTellCounts) {
  Recording recording = test::train_recording();
  recording.ops[0].unannotated_writes = {0};
  EXPECT_THAT(uses_of(recording)[0].writes, ElementsAre(0));
}

TEST(OpUseTest, AnOutputIsNotRead) {
  Recording recording = test::train_recording();
  recording.operators[0].schema = "aten::mm.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)";
  const OpUse use = uses_of(recording)[0];
  EXPECT_THAT(use.reads, ElementsAre(1));
  EXPECT_THAT(use.writes, ElementsAre(0));
}

}  // namespace
}  // namespace steptape::trace
