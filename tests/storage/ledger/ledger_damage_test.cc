#include <gmock/gmock.h>

#include <algorithm>

#include "steptape/error.h"
#include "storage/ledger/ledger_record.h"
#include "tests/storage/figures.h"
#include "tests/storage/ledger/ledger_lines.h"

namespace steptape::storage {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A ledger that was closed, and what is made of other bytes in its place.
class LedgerDamageTest : public testing::Test {
 protected:
  LedgerDamageTest() : bytes_(sample_ledger(whole_)) {}

  FoundLedger recovered(const std::string& bytes) {
    files_.put(kLedgerPath, bytes);
    return read_ledger(kLedgerPath, OnDamage::kRecover, files_);
  }
  Error refusal(const std::string& bytes) {
    files_.put(kLedgerPath, bytes);
    try {
      read_ledger(kLedgerPath, OnDamage::kRefuse, files_);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was read");
  }
  std::string record(std::size_t number) const {
    return bytes_.substr(number * kRecordBytes, kRecordBytes);
  }
  std::size_t records() const { return bytes_.size() / kRecordBytes; }
  std::size_t lines_within(std::size_t length) const {
    std::size_t count = 0;
    for (std::size_t number = 1; (number + 1) * kRecordBytes <= length; ++number) {
      count += type_of(bytes_of(record(number))) == RecordType::kLine ? 1 : 0;
    }
    return count;
  }
  /// The header and what `put_records` puts after it, each sealed.
  template <typename... Put>
  static std::string forged(Put&&... put_records) {
    std::string bytes;
    std::uint64_t number = 0;
    const auto add = [&](auto&& put_record) {
      put_record(bytes);
      seal(bytes, number++, 0);
    };
    add([](std::string& out) { put_ledger_header(out, kRun); });
    (add(put_records), ...);
    return bytes;
  }
  static auto name(std::uint16_t step, std::string_view text, bool goes_on = false) {
    return [=](std::string& out) { put_name(out, {step, goes_on, text}); };
  }
  static auto line(const trace::LedgerLine& line) {
    return [=](std::string& out) { put_line(out, line); };
  }

  trace::Ledger whole_;
  const std::string bytes_;
  MemoryFileSystem files_;
};

TEST_F(LedgerDamageTest, ACutLeavesATornTailAndAllThatIsWhole) {
  for (std::size_t length = 0; length < bytes_.size(); ++length) {
    const std::string cut = bytes_.substr(0, length);
    if (length < kRecordBytes) {
      ASSERT_EQ(refusal(cut).code(), ErrorCode::kDataLoss) << length;
      continue;
    }
    ASSERT_STREQ(refusal(cut).what(), "it was read") << length;
    const FoundLedger found = recovered(cut);
    ASSERT_TRUE(is_prefix(found.ledger, whole_)) << length;
    ASSERT_EQ(found.ledger.lines.size(), lines_within(length)) << length;
    ASSERT_TRUE(length % kRecordBytes == 0 || found.torn_bytes > 0) << length;
    ASSERT_FALSE(found.is_closed) << length;
  }
  tell("ledger_cuts", bytes_.size());
}

TEST_F(LedgerDamageTest, AWriterGoesOnBehindACut) {
  for (std::size_t length = 0; length < bytes_.size(); ++length) {
    files_.put(kLedgerPath, bytes_.substr(0, length));
    {
      LedgerWriter writer(kLedgerPath, kRun, files_);
      const std::uint16_t step = writer.step("train");
      append(writer, step, writer.last_call(step) + 1, 20);
      ASSERT_TRUE(writer.flush()) << length;
    }
    const FoundLedger found = read_ledger(kLedgerPath, OnDamage::kRefuse, files_);
    ASSERT_EQ(std::ranges::count(found.ledger.lines, 0, &trace::LedgerLine::step), 20) << length;
    ASSERT_EQ(found.ledger.lines.back(), line_of(0, 20)) << length;
  }
  tell("ledger_cuts_gone_on_behind", bytes_.size());
}

TEST_F(LedgerDamageTest, AFlippedBitIsNoticedAndNothingWrongIsRecovered) {
  std::string bytes = bytes_;
  const std::size_t mark = bytes.size() - kRecordBytes;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    char& byte = bytes[bit / 8];
    const char right = byte;
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    if (bit / 8 < mark) {
      ASSERT_EQ(refusal(bytes).code(), ErrorCode::kDataLoss) << bit;
    }
    if (bit / 8 >= kRecordBytes) {
      const FoundLedger found = recovered(bytes);
      ASSERT_TRUE(is_prefix(found.ledger, whole_)) << bit;
      ASSERT_EQ(found.damage.empty(), bit / 8 >= mark) << bit;
      ASSERT_EQ(found.torn_bytes, bit / 8 < mark ? 0 : kRecordBytes) << bit;
      ASSERT_FALSE(found.is_closed) << bit;
    }
    byte = right;
  }
  tell("ledger_flipped_bits", bytes.size() * 8);
}

TEST_F(LedgerDamageTest, AWriterLeavesADamagedFileAsItIs) {
  std::string bytes = bytes_;
  bytes[3 * kRecordBytes] ^= 1;
  files_.put(kLedgerPath, bytes);
  EXPECT_THROW(LedgerWriter(kLedgerPath, kRun, files_), Error);
  EXPECT_EQ(files_.bytes_at(kLedgerPath), bytes);
}

TEST_F(LedgerDamageTest, ARecordThatIsMissingDoubledOrExchangedIsNoticed) {
  std::size_t cases = 0;
  for (std::size_t i = 1; i + 1 < records(); ++i) {
    const std::string before = bytes_.substr(0, i * kRecordBytes);
    const std::string behind = bytes_.substr((i + 1) * kRecordBytes);
    for (const std::string& bytes : {before + behind, before + record(i) + record(i) + behind}) {
      const FoundLedger found = recovered(bytes);
      EXPECT_TRUE(is_prefix(found.ledger, whole_)) << i;
      EXPECT_GT(found.torn_bytes + found.damage.size(), 0u) << i;
      ++cases;
    }
    for (std::size_t k = i + 1; k + 1 < records(); ++k, ++cases) {
      std::string bytes = bytes_;
      bytes.replace(i * kRecordBytes, kRecordBytes, record(k));
      bytes.replace(k * kRecordBytes, kRecordBytes, record(i));
      EXPECT_THAT(refusal(bytes).what(), HasSubstr("record " + std::to_string(i) + " at offset"));
    }
  }
  tell("ledger_records_out_of_place", cases);
}

TEST_F(LedgerDamageTest, RecordsThatLieAreRefused) {
  const auto changed = [](auto change) {
    trace::LedgerLine line = line_of(0, 1);
    change(line);
    return LedgerDamageTest::line(line);
  };
  const std::pair<std::string, const char*> lies[] = {
      {forged(line(line_of(0, 1))), "step 0, but there are 0"},
      {forged(name(0, "a"), line(line_of(1, 1))), "step 1, but there are 1"},
      {forged(name(1, "a")), "it names no step that could come after 0 others"},
      {forged(name(0, "a"), name(1, "a")), "two steps have one name"},
      {forged(name(0, "a", true), line(line_of(0, 1))), "a name does not end"},
      {forged(name(0, "a"), changed([](auto& l) { l.call = 0; })), "cannot be"},
      {forged(name(0, "a"), changed([](auto& l) { l.outcome = trace::CallOutcome{9}; })),
       "cannot be"},
      {forged(name(0, "a"), changed([](auto& l) { l.verdict = GuardKind{200}; })), "cannot be"},
      {forged([](std::string& out) { out.append("\x9").append(55, '\0'); }),
       "no record has the type 9"},
      {forged([](std::string& out) { out.append("\x1\x31", 2).append(54, '\0'); }),
       "it names no step"},
  };
  for (const auto& [bytes, words] : lies) {
    EXPECT_EQ(refusal(bytes).code(), ErrorCode::kDataLoss) << words;
    EXPECT_THAT(refusal(bytes).what(), HasSubstr(words));
    EXPECT_THAT(recovered(bytes).damage, HasSubstr(words));
    EXPECT_THAT(recovered(bytes).ledger.lines, IsEmpty());
  }
}

TEST_F(LedgerDamageTest, ANewerVersionIsUnsupported) {
  std::string header;
  put_ledger_header(header, kRun);
  header[kLedgerMagic.size()] = 2;
  seal(header, 0, 0);
  EXPECT_EQ(refusal(header).code(), ErrorCode::kUnsupported);
  EXPECT_THROW(LedgerWriter(kLedgerPath, kRun, files_), Error);
  EXPECT_EQ(files_.bytes_at(kLedgerPath), header);
}

TEST_F(LedgerDamageTest, AnotherFileIsNoLedger) {
  for (const char* text : {"", "a text", "\x89TAPE\r\n\x1a"}) {
    EXPECT_THAT(refusal(text).what(), HasSubstr("is not a ledger"));
  }
}

}  // namespace
}  // namespace steptape::storage
