#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "storage/trace/block.h"
#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using CheckTest = ToolTest;

/// A byte of the first block's payload.
constexpr std::int64_t kInTheHead = storage::kFileHeaderBytes + storage::kBlockHeaderBytes + 3;

TEST_F(CheckTest, AWholeFileIsGood) {
  const Outcome outcome = steptape({"check", path_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, StartsWith(path_.string() + ": whole, format 3.4, "));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(CheckTest, ADamagedFileIsNotAndIsToldAsAResult) {
  flip(kInTheHead);
  const Outcome outcome = steptape({"check", path_});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr(": damaged: "));
  EXPECT_THAT(outcome.out, HasSubstr("block 0 at offset 24 is damaged"));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(CheckTest, ACutFileSaysSo) {
  cut(300);
  const Outcome outcome = steptape({"check", path_});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("it was cut short, or its writer died"));
}

TEST_F(CheckTest, JsonOfAWholeFile) {
  const auto json = nlohmann::json::parse(steptape({"check", path_, "--json"}).out);
  EXPECT_EQ(json["whole"], true);
  EXPECT_EQ(json["format"], "3.4");
  EXPECT_EQ(json["has_index"], true);
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(path_));
  EXPECT_EQ(json["problems"], nlohmann::json::array());
}

TEST_F(CheckTest, JsonOfADamagedFile) {
  flip(kInTheHead);
  const Outcome outcome = steptape({"check", path_, "--json"});
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(json["whole"], false);
  EXPECT_EQ(json["blocks_missing"], 1);
  EXPECT_EQ(json["problems"].size(), 1u);
}

TEST_F(CheckTest, AFileOfANewerFormatIsTroubleAndNotDamaged) {
  std::string header = storage::encode_file_header().substr(0, storage::kMagic.size());
  storage::put(header, std::uint16_t{storage::kMajor + 1});
  storage::put(header, std::uint16_t{0});
  storage::put(header, storage::kLittleEndian);
  storage::put(header, storage::checksum_of(storage::bytes_of(header)));
  std::ofstream(path_, std::ios::binary) << header;
  const Outcome outcome = steptape({"check", path_});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unsupported"));
}

}  // namespace
}  // namespace steptape::tools
