#include "storage/ledger_file.h"

#include <gmock/gmock.h>

#include "steptape/error.h"
#include "tests/storage/ledger_lines.h"

namespace steptape::storage {
namespace {

using testing::Eq;
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
  for (const char* aside : {"/traces/run.tape.ledger.1", "/traces/run.tape.ledger.2"}) {
    leave_a_ledger();
    const std::string bytes = files_.bytes_at(kLedgerPath);
    EXPECT_THAT(set_ledger_aside(kLedgerPath, files_), Optional(Eq(aside)));
    EXPECT_EQ(files_.bytes_at(aside), bytes);
    EXPECT_EQ(set_ledger_aside(kLedgerPath, files_), std::nullopt);
  }
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(LedgerFileTest, ADamagedOneIsKeptToo) {
  leave_a_ledger();
  std::string bytes = files_.bytes_at(kLedgerPath);
  bytes[100] ^= 1;
  files_.put(kLedgerPath, bytes);
  EXPECT_THAT(set_ledger_aside(kLedgerPath, files_), Optional(Eq("/traces/run.tape.ledger.1")));
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

TEST_F(LedgerFileTest, AHeaderThatWasNeverWholeIsNothingToKeep) {
  files_.put(kLedgerPath, std::string(64, '\0'));
  EXPECT_EQ(set_ledger_aside(kLedgerPath, files_), std::nullopt);
}

}  // namespace
}  // namespace steptape::storage
