#include <gtest/gtest.h>

#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/sample.h"
#include "tests/storage/stream.h"
#include "tests/storage/trace_file.h"
#include "tests/trace/made_up.h"

namespace steptape::storage {
namespace {

/// What a recording takes in a file, without digests of ops.
class SizeTest : public testing::Test {
 protected:
  SizeTest() : writer_(kSamplePath, head_of_stream(), {}, files_) {}

  std::size_t bytes_of(const trace::Recording& recording) {
    const std::size_t before = files_.bytes_at(kPartPath).size();
    writer_.add("train", "train.cc:1", recording);
    EXPECT_EQ(writer_.problem(), std::nullopt);
    return files_.bytes_at(kPartPath).size() - before;
  }
  /// The first recording, and the mean of 63 later ones, in bytes an op.
  std::pair<std::size_t, std::size_t> bytes_an_op(const std::string& name,
                                                  trace::Recording recording) {
    constexpr std::size_t kLater = 63;
    recording.op_digests.clear();
    const std::size_t ops = recording.ops.size();
    const std::size_t first = bytes_of(recording) / ops;
    std::size_t later = 0;
    for (std::size_t i = 1; i <= kLater; ++i) {
      recording.call = 1 + i;
      if (trace::Real* const real = test::last_real(recording.ops[ops / 2])) {
        real->value = 0.1 / static_cast<double>(i);
      }
      later += bytes_of(recording);
    }
    later /= kLater * ops;
    tell(name + "_ops", ops);
    tell(name + "_bytes_an_op_of_the_first_recording", first);
    tell(name + "_bytes_an_op_of_later_recordings", later);
    return {first, later};
  }

  MemoryFileSystem files_;
  StreamWriter writer_;
};

TEST_F(SizeTest, AnOpTakesAtMost64Bytes) {
  for (const int modules : {10, 100, 1000}) {
    test::MadeUp wanted;
    wanted.modules = modules;
    const auto [first, later] =
        bytes_an_op("made_up_of_" + std::to_string(modules), test::make_up(wanted));
    EXPECT_LE(first, 64u) << modules;
    EXPECT_LE(later, 12u) << modules;
  }
}

/// Ops many times over in a recording that has everything else once.
TEST_F(SizeTest, AnOpOfARealStepTakesAtMost64Bytes) {
  trace::Recording recording = test::train_recording();
  const std::vector<trace::Op> ops = recording.ops;
  const std::size_t once = ops.size();
  while (recording.ops.size() < 500) {
    recording.ops.insert(recording.ops.end(), ops.begin(), ops.end());
  }
  tell("golden_ops_once", once);
  const auto [first, later] = bytes_an_op("golden", recording);
  EXPECT_LE(first, 64u);
  EXPECT_LE(later, 12u);
}

/// Digests are bits that nothing foretells.
TEST_F(SizeTest, DigestsTake16BytesAnOp) {
  test::MadeUp wanted;
  wanted.modules = 100;
  trace::Recording recording = test::make_up(wanted);
  bytes_of(recording);
  const trace::Blob bits = noise(2 * recording.ops.size() * 16);
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    recording.op_digests.push_back(trace::digest_of(std::span(*bits).subspan(16 * i, 16)));
  }
  const std::size_t bytes = bytes_of(recording) / recording.ops.size();
  tell("bytes_an_op_of_a_later_recording_with_digests", bytes);
  EXPECT_LE(bytes, 18u);
}

}  // namespace
}  // namespace steptape::storage
