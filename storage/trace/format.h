#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// The constants of a trace file. docs/trace_format.md describes its layout, and when it is whole.
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
