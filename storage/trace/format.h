#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// A trace file:
///
///     header   24 bytes   magic 8, major 2, minor 2, order of tensor bytes 4, checksum 8
///     block    32 bytes of header and at most 1 MiB of payload; as often as needed
///     ...
///     block    the index: size and type of every block before it
///     footer   32 bytes   offset of the index 8, bytes of the whole file 8, magic 8, checksum 8
///
/// and a block's header:
///
///     0   type      2   a BlockType
///     2   flags     2   kMustUnderstand, kContinues
///     4   length    4   bytes of payload
///     8   sequence  8   0, 1, 2, ... over the whole file
///     16  checksum  8   of bytes 0 to 16 and the payload
///     24  checksum  8   of bytes 0 to 24
///
/// All numbers are little-endian on every machine; checksums are XXH3-64 with seed 0. The payload
/// of a block is a protobuf message of trace.proto, or a piece of one where the message goes on in
/// the next block (kContinues), or a piece of tensor bytes (frame.h). Steps, recordings and saved
/// state come in order, each followed by the tensor bytes that it is the first to refer to, so that
/// any prefix of the file holds whole recordings.
///
/// Whether a file is whole: (1) the header's checksum holds; (2) every block's two checksums hold;
/// (3) sequence numbers count up without a gap; (4) the index is the last block and says what a
/// scan finds; (5) the footer stands at the end and knows the file's size. A file whose bytes are
/// right as far as they go and then end was cut; any other violation means that bytes are wrong.
///
/// Rejected: one message for the whole trace (a crash loses all of it, and protobuf stops at 2
/// GiB); a checksum of the payload alone (a changed length or type goes unnoticed); one checksum
/// for header and payload (after one wrong byte in a payload the next block cannot be found);
/// searching for the next block by a marker (tensor bytes may hold it); blocks aligned to a page
/// (nothing maps the file: mapped bytes that change or vanish under the reader end the process with
/// SIGBUS); the index first (it is known last, and nothing that was written is written again).
namespace steptape::storage {

/// Begins as PNG does: a byte that is no ASCII, and line ends that a text transfer would change.
inline constexpr std::array<std::uint8_t, 8> kMagic = {0x89, 'T', 'A', 'P', 'E', '\r', '\n', 0x1a};
inline constexpr std::array<std::uint8_t, 8> kFooterMagic = {'T', 'A', 'P', 'E',
                                                             '-', 'E', 'N', 'D'};

/// A reader refuses another major version, and reads every minor version of its own: a minor
/// version adds only message fields and block types that an older reader may skip.
inline constexpr std::uint16_t kMajor = 3;
inline constexpr std::uint16_t kMinor = 4;

/// The only order of tensor bytes so far: little-endian.
inline constexpr std::uint32_t kLittleEndian = 1;

inline constexpr std::size_t kFileHeaderBytes = 24;
inline constexpr std::size_t kBlockHeaderBytes = 32;
inline constexpr std::size_t kFooterBytes = 32;
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{1} << 20;

enum class BlockType : std::uint16_t {
  kHead = 1,         ///< proto::Head; the first block
  kStep,             ///< proto::Step
  kRecording,        ///< proto::Recording of the last step
  kSavedState,       ///< proto::SavedState
  kBytes,            ///< a piece of tensor bytes
  kIndex,            ///< proto::Index; the last block
  kStepAgain,        ///< proto::StepAgain: a step that began before goes on
  kPackedRecording,  ///< proto::PackedRecording: a recording of the last step
  kWindows,          ///< empty: recordings after it may have windows, which a reader must know
};

/// A reader that does not know the type must refuse the file; without it, it skips the block.
inline constexpr std::uint16_t kMustUnderstand = 1;
/// The message goes on in the next block, which has the same type.
inline constexpr std::uint16_t kContinues = 2;
inline constexpr std::uint16_t kKnownFlags = kMustUnderstand | kContinues;

/// A piece of tensor bytes grows at most so many times when it is decompressed. Better-packed
/// pieces are padded, so that a small hostile file cannot fill the memory.
inline constexpr std::uint64_t kMaxExpansion = 256;
/// So does a packed recording, but less: each of its bytes may need many once it is a recording.
inline constexpr std::uint64_t kMaxRecordingExpansion = 16;

}  // namespace steptape::storage
