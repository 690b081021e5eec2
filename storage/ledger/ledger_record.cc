#include "storage/ledger/ledger_record.h"

#include <xxhash.h>

#include <algorithm>

namespace steptape::storage {
namespace {

constexpr std::size_t kSealedBytes = kRecordBytes - sizeof(std::uint64_t);
constexpr std::size_t kFlagsOffset = 3;

std::uint64_t checksum_of_record(ByteView record, std::uint64_t number) noexcept {
  std::array<std::byte, kRecordBytes> bytes{};
  std::ranges::copy(record.first(kSealedBytes), bytes.begin());
  for (std::size_t i = 0; i < sizeof(number); ++i) {
    bytes[kSealedBytes + i] = static_cast<std::byte>(number >> (8 * i) & 0xff);
  }
  return XXH3_64bits(bytes.data(), bytes.size());
}

bool is_known(std::uint8_t outcome) {
  return std::ranges::any_of(trace::call_outcomes(), [outcome](trace::CallOutcome known) {
    return static_cast<std::uint8_t>(known) == outcome;
  });
}

}  // namespace

void put_ledger_header(std::string& out, const trace::Digest& run) {
  for (const std::uint8_t byte : kLedgerMagic) put(out, byte);
  put(out, kLedgerVersion);
  put(out, std::uint32_t{0});
  put(out, run.low);
  put(out, run.high);
  out.append(24, '\0');
}

void put_name(std::string& out, const NamePiece& piece) {
  put(out, static_cast<std::uint8_t>(RecordType::kName));
  put(out, static_cast<std::uint8_t>(piece.text.size()));
  put(out, std::uint8_t{piece.goes_on});
  put(out, std::uint8_t{0});
  put(out, piece.step);
  put(out, std::uint16_t{0});
  out += piece.text;
  out.append(kNameBytes - piece.text.size(), '\0');
}

void put_line(std::string& out, const trace::LedgerLine& line) {
  put(out, static_cast<std::uint8_t>(RecordType::kLine));
  put(out, static_cast<std::uint8_t>(line.outcome));
  put(out, static_cast<std::uint8_t>(line.verdict));
  put(out, std::uint8_t{0});
  put(out, line.step);
  put(out, line.variant);
  put(out, line.call);
  put(out, line.results);
  put(out, line.gradients);
  put(out, line.parameters);
  put(out, line.inputs);
  put(out, line.generators);
  put(out, line.microseconds);
}

void put_mark(std::string& out) {
  put(out, static_cast<std::uint8_t>(RecordType::kMark));
  out.append(kSealedBytes - 1, '\0');
}

void seal(std::string& out, std::uint64_t number, std::uint8_t flags) {
  const std::size_t start = out.size() - kSealedBytes;
  out[start + kFlagsOffset] |= static_cast<char>(flags);
  put(out, checksum_of_record(bytes_of(out).subspan(start), number));
}

bool is_sealed(ByteView record, std::uint64_t number) noexcept {
  return get<std::uint64_t>(record, kSealedBytes) == checksum_of_record(record, number);
}

bool has_ledger_magic(ByteView bytes) noexcept {
  return bytes.size() >= kLedgerMagic.size() &&
         std::ranges::equal(bytes.first(kLedgerMagic.size()),
                            std::as_bytes(std::span(kLedgerMagic)));
}

LedgerHeader decode_ledger_header(ByteView record) {
  return {get<std::uint32_t>(record, 8),
          {get<std::uint64_t>(record, 16), get<std::uint64_t>(record, 24)}};
}

RecordType type_of(ByteView record) noexcept {
  return static_cast<RecordType>(std::to_integer<std::uint8_t>(record[0]));
}

bool has_synced_before(ByteView record) noexcept {
  return (std::to_integer<std::uint8_t>(record[kFlagsOffset]) & kSyncedBefore) != 0;
}

std::optional<NamePiece> decode_name(ByteView record) {
  const auto bytes = get<std::uint8_t>(record, 1);
  if (bytes > kNameBytes) return std::nullopt;
  const char* const text = reinterpret_cast<const char*>(record.data()) + 8;
  return NamePiece{get<std::uint16_t>(record, 4), get<std::uint8_t>(record, 2) != 0, {text, bytes}};
}

std::optional<trace::LedgerLine> decode_line(ByteView record) {
  const auto outcome = get<std::uint8_t>(record, 1);
  const auto verdict = get<std::uint8_t>(record, 2);
  if (!is_known(outcome) || verdict > guard_kinds().size()) return std::nullopt;
  trace::LedgerLine line;
  line.outcome = static_cast<trace::CallOutcome>(outcome);
  line.verdict = static_cast<GuardKind>(verdict);
  line.step = get<std::uint16_t>(record, 4);
  line.variant = get<std::uint16_t>(record, 6);
  line.call = get<std::uint64_t>(record, 8);
  line.results = get<std::uint64_t>(record, 16);
  line.gradients = get<std::uint64_t>(record, 24);
  line.parameters = get<std::uint64_t>(record, 32);
  line.inputs = get<std::uint64_t>(record, 40);
  line.generators = get<std::uint32_t>(record, 48);
  line.microseconds = get<std::uint32_t>(record, 52);
  if (line.call == 0) return std::nullopt;
  return line;
}

}  // namespace steptape::storage
