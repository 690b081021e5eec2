#include <gmock/gmock.h>

#include <random>

#include "steptape/error.h"
#include "storage/files/replace.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/sample.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;
using testing::Optional;

constexpr const char* kPath = "/traces/run.tape";

class AsideTest : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& bytes) { files_.put(path, bytes); }

  MemoryFileSystem files_;
  const std::string trace_ = samples().front().bytes;
};

TEST_F(AsideTest, TracesOfEarlierRunsAreKeptUnderNumbers) {
  EXPECT_EQ(set_trace_aside(kPath, 1, files_), std::nullopt);
  for (const std::uint64_t number : {1, 2}) {
    put(kPath, trace_ + std::to_string(number));
    EXPECT_THAT(set_trace_aside(kPath, 1, files_), Optional(number));
    EXPECT_EQ(files_.bytes_at("/traces/run.tape." + std::to_string(number)),
              trace_ + std::to_string(number));
    EXPECT_EQ(set_trace_aside(kPath, 1, files_), std::nullopt);
  }
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(AsideTest, TheNumberIsTheFirstThatIsFreeFromTheGivenOneOn) {
  put("/traces/run.tape.5", "taken");
  put(kPath, trace_);
  EXPECT_THAT(set_trace_aside(kPath, 5, files_), Optional(6u));
  EXPECT_EQ(files_.bytes_at("/traces/run.tape.5"), "taken");
}

TEST_F(AsideTest, ADamagedTraceIsKeptToo) {
  put(kPath, trace_.substr(0, 40));
  EXPECT_THAT(set_trace_aside(kPath, 1, files_), Optional(1u));
}

TEST_F(AsideTest, AFileThatIsNoTraceStays) {
  put(kPath, "a text of mine");
  try {
    set_trace_aside(kPath, 1, files_);
    FAIL() << "it was set aside";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), HasSubstr("exists and is not a trace"));
  }
  EXPECT_EQ(files_.bytes_at(kPath), "a text of mine");
}

TEST_F(AsideTest, WhatWasSetAsideSurvivesALossOfPower) {
  for (std::mt19937_64 random(7); random() % 32 != 0;) {
    put(kPath, trace_);
    const std::uint64_t number = set_trace_aside(kPath, 1, files_).value();
    files_.lose_power(random);
    ASSERT_FALSE(files_.holds(kPath));
    ASSERT_EQ(files_.bytes_at("/traces/run.tape." + std::to_string(number)), trace_);
  }
}

}  // namespace
}  // namespace steptape::storage
