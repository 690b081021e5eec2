#include "diff/align/recording_pairs.h"

#include <gmock/gmock.h>

#include "tests/trace/samples.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

trace::Recording of_call(std::uint64_t call, trace::Status status = trace::Status::kAgreed) {
  trace::Recording recording = test::train_recording();
  recording.call = call;
  recording.status = status;
  return recording;
}

trace::Step step(std::vector<trace::Recording> recordings) {
  return {"train", "", std::move(recordings)};
}

TEST(RecordingPairsTest, CallsGoBeforeEntries) {
  EXPECT_THAT(
      pair_recordings(step({of_call(3), of_call(4)}), step({of_call(4), of_call(5)})),
      ElementsAre(RecordingPair{0, 1, PairedBy::kEntry}, RecordingPair{1, 0, PairedBy::kCall}));
}

TEST(RecordingPairsTest, AWarmUpIsPairedWithWhatTheOtherSideDidInThatCall) {
  const trace::Step a = step({of_call(1, trace::Status::kWarmUp), of_call(2)});
  EXPECT_THAT(pair_recordings(a, step({of_call(1)})),
              ElementsAre(RecordingPair{0, 0, PairedBy::kCall}));
}

TEST(RecordingPairsTest, CallsThatNobodyCountedAreNoCalls) {
  EXPECT_THAT(pair_recordings(step({of_call(0)}), step({of_call(0)})),
              ElementsAre(RecordingPair{0, 0, PairedBy::kEntry}));
  EXPECT_THAT(pair_recordings(step({of_call(0, trace::Status::kWarmUp)}), step({of_call(0)})),
              IsEmpty());
}

TEST(RecordingPairsTest, ACallThatWasRecordedBesidesIsComparedWithThatCallAlone) {
  const trace::Recording trusted = of_call(3, trace::Status::kTrusted);
  const trace::Step a =
      step({of_call(20, trace::Status::kProbe), of_call(40, trace::Status::kProbe), trusted});
  const trace::Step b =
      step({of_call(40, trace::Status::kProbe), of_call(50, trace::Status::kProbe),
            of_call(2, trace::Status::kTrusted)});
  EXPECT_THAT(pair_recordings(a, b), ElementsAre(RecordingPair{1, 0, PairedBy::kCall},
                                                 RecordingPair{2, 2, PairedBy::kEntry}));
  EXPECT_THAT(pair_recordings(a, step({of_call(2, trace::Status::kTrusted)})),
              ElementsAre(RecordingPair{2, 0, PairedBy::kEntry}));
}

TEST(RecordingPairsTest, WhereNothingElseIsComparedCallsThatWereRecordedBesidesAre) {
  const trace::Recording warm_up = of_call(1, trace::Status::kWarmUp);
  EXPECT_THAT(
      pair_recordings(step({warm_up, of_call(20, trace::Status::kProbe)}),
                      step({warm_up, of_call(50, trace::Status::kProbe)})),
      ElementsAre(RecordingPair{0, 0, PairedBy::kCall}, RecordingPair{1, 1, PairedBy::kEntry}));
}

}  // namespace
}  // namespace steptape::diff
