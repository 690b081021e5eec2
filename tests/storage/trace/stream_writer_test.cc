#include "storage/trace/stream_writer.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "tests/storage/allocations.h"
#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/sample.h"
#include "tests/storage/stream.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StreamWriterTest : public testing::Test {
 protected:
  StreamWriter open() { return StreamWriter(kSamplePath, head_of_stream(), {}, files_); }
  Error refusal() {
    try {
      const StreamWriter writer = open();
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was opened");
  }
  std::optional<trace::Trace> recovered(const std::string& path) {
    Report report;
    return recover(path, report, files_);
  }

  const std::vector<Added> added_ = additions(10);
  MemoryFileSystem files_;
};

TEST_F(StreamWriterTest, RecordingsOfStepsThatTakeTurnsComeBack) {
  StreamWriter writer = open();
  add(writer, added_);
  EXPECT_TRUE(writer.finish());
  EXPECT_EQ(read(kSamplePath, files_), trace_of(added_));
  EXPECT_TRUE(check(kSamplePath, files_).whole());
  EXPECT_THAT(files_.names(), ElementsAre(kSamplePath));
  EXPECT_EQ(files_.open_files(), 0u);
  EXPECT_EQ(writer.lost(), 0u);
  EXPECT_EQ(writer.problem(), std::nullopt);
}

TEST_F(StreamWriterTest, TheNewestAccountOfAStepComesBack) {
  StreamWriter writer = open();
  add(writer, added_);
  trace::Trace expected = trace_of(added_);
  trace::Step& step = expected.steps[0];
  step.account = {1, 0, 0, 0, 0, {}};
  writer.add_account(step);
  step.account = test::account();
  writer.add_account(step);
  EXPECT_TRUE(writer.finish());
  EXPECT_EQ(read(kSamplePath, files_), expected);
}

TEST_F(StreamWriterTest, AStepIsNamedAnewOnlyWhereAnotherCameBetween) {
  StreamWriter writer = open();
  for (const char* step : {"train", "train", "eval", "train", "train", "eval"}) {
    writer.add(step, "", added_[0].recording);
  }
  writer.finish();
  std::vector<int> types;
  for (const Block& block : blocks_of(files_.bytes_at(kSamplePath))) {
    if (!block.is(BlockType::kBytes)) types.push_back(block.type);
  }
  EXPECT_THAT(types, ElementsAre(1, 2, 8, 8, 2, 8, 7, 8, 8, 7, 8, 6));
}

TEST_F(StreamWriterTest, EqualBytesOfLaterRecordingsAreStoredOnce) {
  StreamWriter writer = open();
  Added added = addition(1);
  add(writer, added);
  const std::size_t before = files_.bytes_at(kPartPath).size();
  const auto pieces = [&] {
    const std::vector<Block> blocks = blocks_of(files_.bytes_at(kPartPath));
    return std::ranges::count_if(blocks, [](const Block& b) { return b.is(BlockType::kBytes); });
  };
  const auto once = pieces();
  ASSERT_GT(once, 0);
  copy_contents(added.recording);
  add(writer, added);
  EXPECT_EQ(pieces(), once);
  EXPECT_GT(files_.bytes_at(kPartPath).size(), before);
}

TEST_F(StreamWriterTest, WhatWasAddedIsReadBesideTheWriter) {
  StreamWriter writer = open();
  add(writer, added_);
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(writer.part(), kPartPath);
  EXPECT_EQ(recovered(kPartPath), trace_of(added_));
  EXPECT_FALSE(files_.holds(kSamplePath));
}

TEST_F(StreamWriterTest, WithoutFinishTheFileStaysWhereItGrew) {
  {
    add(*std::make_unique<StreamWriter>(kSamplePath, head_of_stream(), WriteOptions(), files_),
        added_);
  }
  EXPECT_THAT(files_.names(), ElementsAre(kPartPath));
  EXPECT_EQ(recovered(kPartPath), trace_of(added_));
}

TEST_F(StreamWriterTest, WhatEarlierOnesLeftIsSetAside) {
  std::vector<std::string> left;
  for (std::uint64_t count = 1; count <= 3; ++count) {
    StreamWriter writer = open();
    add(writer, additions(count));
    left.push_back(files_.bytes_at(kPartPath));
  }
  StreamWriter writer = open();
  const std::string part = kPartPath;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(files_.bytes_at(part + "." + std::to_string(i + 1)),
              left[static_cast<std::size_t>(i)]);
  }
  add(writer, added_);
  EXPECT_TRUE(writer.finish());
  EXPECT_THAT(files_.names(), ElementsAre(kSamplePath, part + ".1", part + ".2", part + ".3"));
}

TEST_F(StreamWriterTest, AForeignFileUnderTheNameIsSetAsideToo) {
  files_.put(kPartPath, "a text of mine");
  EXPECT_STREQ(refusal().what(), "it was opened");
  EXPECT_EQ(files_.bytes_at(std::string(kPartPath) + ".1"), "a text of mine");
}

TEST_F(StreamWriterTest, AForeignFileInItsPlaceIsNeverReplaced) {
  files_.put(kSamplePath, "a text of mine");
  EXPECT_EQ(refusal().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refusal().what(), HasSubstr("/traces/run.tape exists and is not a trace"));
  EXPECT_THAT(files_.names(), ElementsAre(kSamplePath));
}

TEST_F(StreamWriterTest, AForeignFileThatCameIntoItsPlaceIsNotReplaced) {
  StreamWriter writer = open();
  add(writer, added_);
  files_.put(kSamplePath, "a text of mine");
  EXPECT_FALSE(writer.finish());
  EXPECT_THAT(writer.problem().value_or(""), HasSubstr("exists and is not a trace"));
  EXPECT_EQ(files_.bytes_at(kSamplePath), "a text of mine");
  EXPECT_EQ(recovered(kPartPath), trace_of(added_));
}

TEST_F(StreamWriterTest, AFileThatSomebodyTookAwayIsNotMissed) {
  StreamWriter writer = open();
  add(writer, added_);
  files_.put(kPartPath, "another");
  EXPECT_FALSE(writer.finish());
  EXPECT_EQ(writer.problem(), "somebody took /traces/run.tape.part away");
  EXPECT_FALSE(files_.holds(kSamplePath));
}

TEST_F(StreamWriterTest, AnOlderTraceStaysUntilTheNewOneIsFinished) {
  files_.put(kSamplePath, sample("old", test::numbers_trace()).bytes);
  StreamWriter writer = open();
  add(writer, added_);
  EXPECT_EQ(read(kSamplePath, files_), test::numbers_trace());
  writer.finish();
  EXPECT_EQ(read(kSamplePath, files_), trace_of(added_));
}

TEST_F(StreamWriterTest, ASecondWriterIsRefusedUntilTheFirstHasFinished) {
  StreamWriter writer = open();
  add(writer, added_);
  EXPECT_EQ(refusal().code(), ErrorCode::kFailedPrecondition);
  EXPECT_STREQ(refusal().what(),
               "/traces/run.tape is being written by another process or session; choose another "
               "path, or end that one");
  EXPECT_TRUE(writer.finish());
  EXPECT_STREQ(refusal().what(), "it was opened");
}

TEST_F(StreamWriterTest, AFileSystemWithoutLocksHasATraceAllTheSame) {
  constexpr std::size_t kLock = 3;  // after looks for a link and for the place, and opening
  files_.fail(kLock, EOPNOTSUPP, Lasting::kOnce);
  StreamWriter writer = open();
  add(writer, added_);
  EXPECT_TRUE(writer.finish());
}

TEST_F(StreamWriterTest, ARecordingThatIsNotValidIsLostAlone) {
  StreamWriter writer = open();
  add(writer, added_[0]);
  for (int i = 0; i < 2; ++i) {
    trace::Recording wrong = added_[0].recording;
    wrong.results = {99};
    writer.add("train", "", wrong);
  }
  add(writer, added_[1]);
  EXPECT_EQ(writer.problem(),
            "a recording of step train was not written to /traces/run.tape.part: it is not valid: "
            "result 0: tensor 99, but there are " +
                std::to_string(added_[0].recording.tensors.size()));
  EXPECT_EQ(writer.problem(), std::nullopt);
  EXPECT_EQ(writer.lost(), 2u);
  EXPECT_TRUE(writer.finish());
  EXPECT_EQ(read(kSamplePath, files_), trace_of({added_[0], added_[1]}));
}

TEST_F(StreamWriterTest, WhatIsAddedBehindTheEndIsLost) {
  StreamWriter writer = open();
  writer.finish();
  add(writer, added_[0]);
  EXPECT_FALSE(writer.flush());
  EXPECT_FALSE(writer.finish());
  EXPECT_EQ(writer.lost(), 1u);
  EXPECT_EQ(writer.problem(), std::nullopt);
  EXPECT_EQ(read(kSamplePath, files_), head_of_stream());
}

/// Bytes in use at most while recordings `first` to `last` are added.
std::uint64_t peak_of(StreamWriter& writer, std::uint64_t first, std::uint64_t last) {
  const AllocationCount count;
  for (std::uint64_t call = first; call <= last; ++call) add(writer, addition(call));
  return count.peak();
}

/// On real files, where memory is not what the file holds.
class StreamOnDiskTest : public TraceFileTest {
 protected:
  std::filesystem::path part_ = path_.string() + ".part";
};

TEST_F(StreamOnDiskTest, AThousandRecordingsTakeBoundedMemory) {
  constexpr std::uint64_t kRecordings = 1000;
  StreamWriter writer(path_, head_of_stream());
  const std::uint64_t early = peak_of(writer, 1, 100);
  const std::uint64_t late = peak_of(writer, 101, kRecordings);
  EXPECT_TRUE(writer.finish());
  // The index doubles its room now and then.
  EXPECT_LE(late, early + (std::uint64_t{64} << 10));
  EXPECT_EQ(read(path_), trace_of(additions(kRecordings)));
  tell("stream_recordings", kRecordings);
  tell("stream_peak_bytes_of_the_first_100", early);
  tell("stream_peak_bytes_of_the_other_900", late);
}

TEST_F(StreamOnDiskTest, ALinkStaysALink) {
  std::filesystem::create_directory(folder_ / "elsewhere");
  std::filesystem::create_symlink("elsewhere/real", path_);
  StreamWriter writer(path_, head_of_stream());
  EXPECT_EQ(writer.part(), folder_ / "elsewhere" / "real.part");
  EXPECT_TRUE(writer.finish());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(read(path_), head_of_stream());
}

TEST_F(StreamOnDiskTest, PermissionsOfTheOldFileAreKept) {
  write(test::train_trace(), path_);
  ::chmod(path_.c_str(), 0600);
  StreamWriter writer(path_, head_of_stream());
  EXPECT_EQ(std::filesystem::status(part_).permissions(), std::filesystem::perms(0600));
  writer.finish();
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0600));
}

TEST_F(StreamOnDiskTest, WhatIsNoFileIsRefused) {
  EXPECT_THROW(StreamWriter("/dev/null", head_of_stream()), Error);
  EXPECT_THROW(StreamWriter(folder_, head_of_stream()), Error);
  std::filesystem::create_directory(part_);
  EXPECT_THROW(StreamWriter(path_, head_of_stream()), Error);
}

int exit_code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(StreamOnDiskTest, AnotherProcessIsRefusedWhileTheFirstLives) {
  const StreamWriter writer(path_, head_of_stream());
  const pid_t other = ::fork();
  if (other == 0) {
    try {
      const StreamWriter second(path_, head_of_stream());
    } catch (const Error& error) {
      ::_exit(error.code() == ErrorCode::kFailedPrecondition ? 7 : 1);
    }
    ::_exit(0);
  }
  EXPECT_EQ(exit_code_of(other), 7);
  EXPECT_THAT(names_in_folder(), ElementsAre("run.tape.part"));
}

TEST_F(StreamOnDiskTest, AForkedChildWritesNothing) {
  auto writer = std::make_unique<StreamWriter>(path_, head_of_stream());
  add(*writer, additions(2));
  const pid_t child = ::fork();
  if (child == 0) {
    add(*writer, addition(3));
    const bool is_right =
        !writer->flush() && !writer->finish() && writer->lost() == 1 &&
        writer->problem().value_or("").find("was forked from") != std::string::npos;
    writer.reset();
    ::_exit(is_right ? 0 : 1);
  }
  EXPECT_EQ(exit_code_of(child), 0);
  add(*writer, addition(3));
  EXPECT_TRUE(writer->finish());
  EXPECT_EQ(read(path_), trace_of(additions(3)));
}

}  // namespace
}  // namespace steptape::storage
