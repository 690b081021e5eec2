#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "storage/trace/format.h"
#include "storage/trace/reader.h"
#include "tests/storage/golden_text.h"
#include "trace/text/text.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::string text_at(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> files_ending(const std::string& extension) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kGolden)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  return paths;
}

std::filesystem::path text_beside(const std::filesystem::path& file) {
  std::filesystem::path path = file;
  path += ".txt";
  return path;
}

/// Files that earlier builds wrote. They are never written again: what was saved once is read for
/// as long as its version is.
TEST(GoldenTest, EveryTraceReadsBackToItsText) {
  const auto tapes = files_ending(".tape");
  EXPECT_THAT(tapes, SizeIs(testing::Ge(2u)));
  for (const auto& tape : tapes) {
    const trace::Trace trace = read(tape);
    EXPECT_EQ(trace::print(trace, trace::Contents::kBytes), text_at(text_beside(tape))) << tape;
    EXPECT_TRUE(check(tape).whole()) << tape;
  }
}

TEST(GoldenTest, WhatAKilledWriterLeftIsRecovered) {
  const auto parts = files_ending(".part");
  EXPECT_THAT(parts, SizeIs(testing::Ge(1u)));
  for (const auto& part : parts) {
    Report report;
    const auto found = recover(part, report);
    ASSERT_TRUE(found) << part;
    EXPECT_EQ(trace::print(*found, trace::Contents::kBytes), text_at(text_beside(part))) << part;
    EXPECT_THAT(report.problems,
                testing::ElementsAre(HasSubstr("it was cut short, or its writer died")));
  }
}

TEST(GoldenTest, EveryLedgerReadsBackToItsText) {
  const auto ledgers = files_ending(".ledger");
  EXPECT_THAT(ledgers, SizeIs(testing::Ge(1u)));
  for (const auto& ledger : ledgers) {
    EXPECT_EQ(text_of_ledger(read_ledger(ledger)), text_at(text_beside(ledger))) << ledger;
  }
}

TEST(GoldenTest, AFileIsOfTheVersionOfItsFolder) {
  for (const auto& tape : files_ending(".tape")) {
    const FormatVersion format = check(tape).format;
    EXPECT_EQ(golden_of_traces(format.major, format.minor), tape.parent_path());
  }
}

TEST(GoldenTest, TheVersionsThatAreWrittenHaveTheirFiles) {
  EXPECT_TRUE(std::filesystem::exists(golden_of_traces(kMajor, kMinor) / "stream.tape"));
  EXPECT_TRUE(std::filesystem::exists(golden_of_ledgers(kLedgerVersion) / "run.tape.ledger"));
}

}  // namespace
}  // namespace steptape::storage
