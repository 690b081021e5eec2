#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steptape/error.h"
#include "tests/storage/allocations.h"
#include "tests/storage/figures.h"
#include "tests/storage/ledger/ledger_lines.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;

class LedgerWriterTest : public testing::Test {
 protected:
  FoundLedger found() { return read_ledger(kLedgerPath, OnDamage::kRefuse, files_); }
  Error refusal() {
    try {
      const LedgerWriter writer(kLedgerPath, kRun, files_);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was opened");
  }
  MemoryFileSystem files_;
};

TEST_F(LedgerWriterTest, NamesAndLinesComeBack) {
  trace::Ledger written;
  files_.put(kLedgerPath, sample_ledger(written));
  const FoundLedger ledger = found();
  EXPECT_EQ(ledger.ledger, written);
  EXPECT_EQ(ledger.torn_bytes, 0u);
  EXPECT_TRUE(ledger.is_closed);
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(LedgerWriterTest, ACallTakes64Bytes) {
  constexpr std::uint64_t kCalls = 1000;
  LedgerWriter writer(kLedgerPath, kRun, files_);
  const std::uint16_t step = writer.step("train");
  writer.flush();
  const std::size_t before = files_.bytes_at(kLedgerPath).size();
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    writer.append(line_of(step, call));
    ASSERT_TRUE(writer.flush());
  }
  const std::size_t bytes = files_.bytes_at(kLedgerPath).size() - before;
  EXPECT_EQ(bytes, kCalls * 64);
  tell("ledger_bytes_of_a_call_that_is_flushed", bytes / kCalls);
}

TEST_F(LedgerWriterTest, AnotherWriterGoesOnBehindTheFirst) {
  {
    LedgerWriter writer(kLedgerPath, kRun, files_);
    append(writer, writer.step("train"), 1, 5);
  }
  LedgerWriter writer(kLedgerPath, trace::Digest{}, files_);
  EXPECT_EQ(writer.run(), kRun);
  EXPECT_EQ(writer.step("train"), 0);
  EXPECT_EQ(writer.last_call(0), 5u);
  EXPECT_EQ(writer.last_call(writer.step("eval")), 0u);
  append(writer, 0, 6, 9);
  writer.close();
  EXPECT_EQ(found().ledger.lines.size(), 9u);
  EXPECT_EQ(found().ledger.steps, (std::vector<std::string>{"train", "eval"}));
}

TEST_F(LedgerWriterTest, AReaderSeesWhatWasFlushedBesideTheWriter) {
  LedgerWriter writer(kLedgerPath, kRun, files_);
  append(writer, writer.step("train"), 1, 5);
  writer.flush();
  append(writer, 0, 6, 7);
  EXPECT_EQ(found().ledger.lines.size(), 5u);
  EXPECT_FALSE(found().is_closed);
}

TEST_F(LedgerWriterTest, WhatWasHandedOverIsInTheFileAndNotYetOnTheDisk) {
  LedgerWriter writer(kLedgerPath, kRun, files_);
  append(writer, writer.step("train"), 1, 5);
  EXPECT_TRUE(writer.hand_over());
  EXPECT_EQ(found().ledger.lines.size(), 5u);
  EXPECT_TRUE(writer.hand_over());
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(found().ledger.lines.size(), 5u);
}

TEST_F(LedgerWriterTest, ASecondWriterIsRefusedUntilTheFirstCloses) {
  LedgerWriter writer(kLedgerPath, kRun, files_);
  EXPECT_EQ(refusal().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refusal().what(), HasSubstr("is open in another process"));
  writer.close();
  EXPECT_STREQ(refusal().what(), "it was opened");
}

TEST_F(LedgerWriterTest, AFileThatIsNoLedgerIsLeftAsItIs) {
  for (const char* text : {"x", "a text of mine", "\x89TAPE\r\n\x1a"}) {
    files_.put(kLedgerPath, text);
    EXPECT_EQ(refusal().code(), ErrorCode::kFailedPrecondition) << text;
    EXPECT_EQ(files_.bytes_at(kLedgerPath), text);
  }
}

TEST_F(LedgerWriterTest, WhatAMachineLeavesThatStopsWhileTheFileIsMadeIsBegunAnew) {
  std::string header;
  {
    const LedgerWriter writer(kLedgerPath, kRun, files_);
    header = files_.bytes_at(kLedgerPath);
  }
  ASSERT_EQ(header.size(), 64u);
  std::vector<std::string> left = {"", std::string(64, '\0')};
  for (std::size_t length = 1; length < header.size(); ++length) {
    left.push_back(header.substr(0, length));
  }
  for (const std::string& bytes : left) {
    files_.put(kLedgerPath, bytes);
    { const LedgerWriter writer(kLedgerPath, kRun, files_); }
    EXPECT_EQ(found().ledger.run, kRun) << bytes.size();
  }
}

TEST_F(LedgerWriterTest, ALineThatCannotBeInALedgerIsAProblemAndNoDamage) {
  LedgerWriter writer(kLedgerPath, kRun, files_);
  append(writer, writer.step("train"), 1, 2);
  writer.flush();
  writer.append(line_of(1, 1));
  EXPECT_THAT(writer.problem().value_or(""), HasSubstr("call 1 of step 1 of 1"));
  EXPECT_EQ(writer.problem(), std::nullopt);
  EXPECT_EQ(writer.lost(), 1u);
  EXPECT_EQ(found().ledger.lines.size(), 2u);
}

/// On real files, where memory is not what the file holds.
class LedgerOnDiskTest : public TraceFileTest {};

TEST_F(LedgerOnDiskTest, AMillionLinesTakeBoundedMemory) {
  constexpr std::uint64_t kLines = 1'000'000;
  LedgerWriter writer(path_, kRun);
  const std::uint16_t step = writer.step("train");
  append(writer, step, 1, 10'000);
  const AllocationCount count;
  append(writer, step, 10'001, kLines);
  const std::uint64_t bytes = count.bytes();
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(bytes, 0u);
  const FoundLedger found = read_ledger(path_);
  EXPECT_EQ(found.ledger.lines.size(), kLines);
  EXPECT_EQ(found.ledger.lines.back(), line_of(step, kLines));
  tell("ledger_lines", kLines);
  tell("ledger_bytes_allocated_for_them", bytes);
}

TEST_F(LedgerOnDiskTest, AnotherProcessIsRefusedWhileTheFirstLives) {
  LedgerWriter writer(path_, kRun);
  const pid_t other = ::fork();
  if (other == 0) {
    try {
      const LedgerWriter second(path_, kRun);
    } catch (const Error& error) {
      ::_exit(error.code() == ErrorCode::kFailedPrecondition ? 7 : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(LedgerOnDiskTest, AForkedChildWritesNothing) {
  auto writer = std::make_unique<LedgerWriter>(path_, kRun);
  append(*writer, writer->step("train"), 1, 3);
  const pid_t child = ::fork();
  if (child == 0) {
    writer->append(line_of(0, 4));
    const bool is_flushed = writer->flush();
    writer.reset();
    ::_exit(is_flushed ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  append(*writer, 0, 4, 5);
  writer.reset();
  EXPECT_EQ(read_ledger(path_).ledger.lines.size(), 5u);
}

TEST_F(LedgerOnDiskTest, ALinkIsFollowed) {
  std::filesystem::create_directory(folder_ / "elsewhere");
  std::filesystem::create_symlink("elsewhere/real", path_);
  { const LedgerWriter writer(path_, kRun); }
  EXPECT_TRUE(is_ledger(folder_ / "elsewhere" / "real"));
}

TEST_F(LedgerOnDiskTest, WhatIsNoFileIsRefused) {
  EXPECT_THROW(LedgerWriter("/dev/null", kRun), Error);
  EXPECT_THROW(LedgerWriter(folder_, kRun), Error);
}

}  // namespace
}  // namespace steptape::storage
