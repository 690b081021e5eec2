#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "storage/files/wire.h"
#include "trace/ledger.h"

/// The records of a ledger file, run.tape.ledger beside run.tape: 64 bytes each, appended and never
/// written again. docs/trace_format.md describes them, and how damage is told from a torn tail.
///
/// Rejected: telling them apart by whether good records follow (what was written between two syncs
/// reaches the disk in any order); a mark after every sync (a file twice as large where every call
/// is synced); a trace's blocks (32 bytes of header for 56 of payload).
namespace steptape::storage {

inline constexpr std::array<std::uint8_t, 8> kLedgerMagic = {0x89, 'T',  'L',  'E',
                                                             'D',  '\r', '\n', 0x1a};
/// A reader refuses a newer one; the header's layout never changes.
inline constexpr std::uint32_t kLedgerVersion = 1;
inline constexpr std::size_t kRecordBytes = 64;
inline constexpr std::size_t kNameBytes = 48;  ///< of a name in one record
inline constexpr std::size_t kMaxSteps = 0xffff;

enum class RecordType : std::uint8_t { kName = 1, kLine, kMark };

/// All records before this one were on the disk when it was written.
inline constexpr std::uint8_t kSyncedBefore = 1;

/// What one record says of a name.
struct NamePiece {
  std::uint16_t step = 0;
  bool goes_on = false;   ///< in the next record
  std::string_view text;  ///< at most 48 bytes
};

/// Each appends 56 bytes, a record without its checksum.
void put_ledger_header(std::string& out, const trace::Digest& run);
void put_name(std::string& out, const NamePiece& piece);
void put_line(std::string& out, const trace::LedgerLine& line);
void put_mark(std::string& out);

/// Makes the last 56 bytes of `out` record `number` of a ledger.
void seal(std::string& out, std::uint64_t number, std::uint8_t flags);
/// Whether the 64 bytes are record `number` of a ledger.
bool is_sealed(ByteView record, std::uint64_t number) noexcept;

struct LedgerHeader {
  std::uint32_t version = 0;
  trace::Digest run;
};
bool has_ledger_magic(ByteView bytes) noexcept;
LedgerHeader decode_ledger_header(ByteView record);

/// These take a record that is sealed, and give none where it says what cannot be. A name's text
/// lies in the record.
RecordType type_of(ByteView record) noexcept;
bool has_synced_before(ByteView record) noexcept;
std::optional<NamePiece> decode_name(ByteView record);
std::optional<trace::LedgerLine> decode_line(ByteView record);

}  // namespace steptape::storage
