#include "storage/ledger/ledger_file.h"

#include <gmock/gmock.h>

#include "steptape/error.h"
#include "storage/ledger/ledger_reader.h"
#include "tests/storage/ledger/ledger_lines.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;
using testing::Optional;

class LedgerFileTest : public testing::Test {
 protected:
  Error refusal() {
    try {
      set_ledger_aside(kLedgerPath, files_);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was set aside");
  }
  void leave_a_ledger() {
    trace::Ledger ledger;
    files_.put(kLedgerPath, sample_ledger(ledger));
  }

  MemoryFileSystem files_;
};

TEST_F(LedgerFileTest, LedgersOfEarlierRunsAreKeptUnderNumbers) {
  EXPECT_EQ(set_ledger_aside(kLedgerPath, files_), std::nullopt);
  for (const std::uint64_t number : {1, 2}) {
    leave_a_ledger();
    const std::string bytes = files_.bytes_at(kLedgerPath);
    EXPECT_THAT(set_ledger_aside(kLedgerPath, files_), Optional(number));
    EXPECT_EQ(files_.bytes_at("/traces/run.tape.ledger." + std::to_string(number)), bytes);
    EXPECT_EQ(set_ledger_aside(kLedgerPath, files_), std::nullopt);
  }
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(LedgerFileTest, ADamagedOneIsKeptToo) {
  leave_a_ledger();
  std::string bytes = files_.bytes_at(kLedgerPath);
  bytes[100] ^= 1;
  files_.put(kLedgerPath, bytes);
  EXPECT_THAT(set_ledger_aside(kLedgerPath, files_), Optional(1u));
  EXPECT_EQ(files_.bytes_at("/traces/run.tape.ledger.1"), bytes);
}

TEST_F(LedgerFileTest, OneThatAnotherWriterHasOpenStays) {
  LedgerWriter writer(kLedgerPath, kRun, files_);
  append(writer, writer.step("train"), 1, 2);
  EXPECT_EQ(refusal().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refusal().what(), HasSubstr("is open in another process or session"));
  writer.close();
  EXPECT_STREQ(refusal().what(), "it was set aside");
}

TEST_F(LedgerFileTest, AFileThatIsNoLedgerStays) {
  files_.put(kLedgerPath, "a text of mine");
  EXPECT_EQ(refusal().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(files_.bytes_at(kLedgerPath), "a text of mine");
}

TEST_F(LedgerFileTest, ItsPlaceFollowsFromThatOfTheTrace) {
  EXPECT_EQ(ledger_beside("/traces/run.tape"), "/traces/run.tape.ledger");
  EXPECT_EQ(ledger_beside("run"), "run.ledger");
  EXPECT_EQ(ledger_beside("run.2"), "run.2.ledger");
  EXPECT_EQ(ledger_beside("run.tape."), "run.tape..ledger");
  EXPECT_EQ(ledger_beside("run.v2.tape"), "run.v2.tape.ledger");
  // of a trace that was set aside
  EXPECT_EQ(ledger_beside("/traces/run.tape.12"), "/traces/run.tape.ledger.12");
  EXPECT_EQ(ledger_beside("run.tape.1"), "run.tape.ledger.1");
}

TEST_F(LedgerFileTest, AHeaderThatWasNeverWholeIsNothingToKeep) {
  files_.put(kLedgerPath, std::string(64, '\0'));
  EXPECT_EQ(set_ledger_aside(kLedgerPath, files_), std::nullopt);
}

}  // namespace
}  // namespace steptape::storage
