#include "trace/recording_pairs.h"

#include <gmock/gmock.h>

#include "tests/trace/samples.h"

namespace steptape::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Recording of_call(std::uint64_t call, Standing standing = Standing::kAgreed) {
  Recording recording = test::train_recording();
  recording.call = call;
  recording.standing = standing;
  return recording;
}

Step step(std::vector<Recording> recordings) { return {"train", "", std::move(recordings)}; }

TEST(RecordingPairsTest, CallsGoBeforeEntries) {
  EXPECT_THAT(
      pair_recordings(step({of_call(3), of_call(4)}), step({of_call(4), of_call(5)})),
      ElementsAre(RecordingPair{0, 1, PairedBy::kEntry}, RecordingPair{1, 0, PairedBy::kCall}));
}

TEST(RecordingPairsTest, AWarmUpIsPairedWithWhatTheOtherSideDidInThatCall) {
  const Step a = step({of_call(1, Standing::kWarmUp), of_call(2)});
  EXPECT_THAT(pair_recordings(a, step({of_call(1)})),
              ElementsAre(RecordingPair{0, 0, PairedBy::kCall}));
}

TEST(RecordingPairsTest, CallsThatNobodyCountedAreNoCalls) {
  EXPECT_THAT(pair_recordings(step({of_call(0)}), step({of_call(0)})),
              ElementsAre(RecordingPair{0, 0, PairedBy::kEntry}));
  EXPECT_THAT(pair_recordings(step({of_call(0, Standing::kWarmUp)}), step({of_call(0)})),
              IsEmpty());
}

TEST(RecordingPairsTest, ACallThatWasRecordedBesidesIsComparedWithThatCallAlone) {
  const Recording trusted = of_call(3, Standing::kTrusted);
  const Step a = step({of_call(20, Standing::kProbe), of_call(40, Standing::kProbe), trusted});
  const Step b = step({of_call(40, Standing::kProbe), of_call(50, Standing::kProbe),
                       of_call(2, Standing::kTrusted)});
  EXPECT_THAT(pair_recordings(a, b), ElementsAre(RecordingPair{1, 0, PairedBy::kCall},
                                                 RecordingPair{2, 2, PairedBy::kEntry}));
  EXPECT_THAT(pair_recordings(a, step({of_call(2, Standing::kTrusted)})),
              ElementsAre(RecordingPair{2, 0, PairedBy::kEntry}));
}

TEST(RecordingPairsTest, WhereNothingElseIsComparedCallsThatWereRecordedBesidesAre) {
  const Recording warm_up = of_call(1, Standing::kWarmUp);
  EXPECT_THAT(
      pair_recordings(step({warm_up, of_call(20, Standing::kProbe)}),
                      step({warm_up, of_call(50, Standing::kProbe)})),
      ElementsAre(RecordingPair{0, 0, PairedBy::kCall}, RecordingPair{1, 1, PairedBy::kEntry}));
}

}  // namespace
}  // namespace steptape::trace
