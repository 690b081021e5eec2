#include "replayer/player/weights/zip_directory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "steptape/error.h"
#include "storage/files/wire.h"

/// APPNOTE.TXT, the .ZIP File Format Specification of PKWARE, sections 4.3.12 to 4.3.16 and 4.5.3.
namespace steptape::replayer {
namespace {

constexpr std::uint32_t kIn64 = 0xffffffff;  ///< the 64-bit field has it

[[noreturn]] void damaged(const char* what) {
  throw Error(ErrorCode::kDataLoss, std::string("it is a damaged archive: ") + what);
}

/// Bytes of the file whose fields are read with their bounds.
class Fields {
 public:
  explicit Fields(std::string bytes) : bytes_(std::move(bytes)) {}
  template <typename Number>
  Number at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Number))
      damaged("its directory ends too early");
    return storage::get<Number>(storage::bytes_of(bytes_), offset);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct Directory {
  std::uint64_t entries = 0, bytes = 0, offset = 0;
};

Fields part_of(const storage::InputFile& file, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > file.bytes() || file.bytes() - offset < bytes) damaged("its directory lies outside");
  return Fields(file.read(offset, bytes));
}

Directory directory_of(const storage::InputFile& file) {
  constexpr std::uint64_t kEnd = 22, kLongestComment = 65535, kLocator = 20, kEnd64 = 56;
  const std::uint64_t tail = std::min(file.bytes(), kEnd + kLongestComment);
  const Fields last = part_of(file, file.bytes() - tail, tail);
  const std::size_t found = last.bytes().rfind("PK\x05\x06");
  if (found == std::string::npos) damaged("it has no directory");
  Directory directory{last.at<std::uint16_t>(found + 10), last.at<std::uint32_t>(found + 12),
                      last.at<std::uint32_t>(found + 16)};
  const std::uint64_t end = file.bytes() - tail + found;
  if (end < kLocator) return directory;
  const Fields locator = part_of(file, end - kLocator, kLocator);
  if (locator.at<std::uint32_t>(0) != 0x07064b50) return directory;
  const Fields end64 = part_of(file, locator.at<std::uint64_t>(8), kEnd64);
  if (end64.at<std::uint32_t>(0) != 0x06064b50) damaged("its directory is not where it says");
  return {end64.at<std::uint64_t>(32), end64.at<std::uint64_t>(40), end64.at<std::uint64_t>(48)};
}

/// The uncompressed size, which comes first in the extra field where the entry has no room for it.
std::uint64_t size_in_extra(const Fields& entries, std::uint64_t first, std::uint64_t bytes) {
  for (std::uint64_t at = first; at + 4 <= first + bytes;) {
    const auto kind = entries.at<std::uint16_t>(at);
    const auto length = entries.at<std::uint16_t>(at + 2);
    if (kind == 1) return entries.at<std::uint64_t>(at + 4);
    at += 4 + std::uint64_t{length};
  }
  damaged("an entry has no size");
}

}  // namespace

void require_stored(const storage::InputFile& file) {
  constexpr std::uint64_t kHeader = 46;
  const Directory directory = directory_of(file);
  const Fields entries = part_of(file, directory.offset, directory.bytes);
  std::uint64_t left = file.bytes();
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (entries.at<std::uint32_t>(at) != 0x02014b50) damaged("an entry is none");
    if (entries.at<std::uint16_t>(at + 10) != 0)
      throw Error(ErrorCode::kUnsupported,
                  "a record of it is compressed, which torch.save does not");
    const auto name = entries.at<std::uint16_t>(at + 28);
    const auto extra = entries.at<std::uint16_t>(at + 30);
    const auto comment = entries.at<std::uint16_t>(at + 32);
    std::uint64_t size = entries.at<std::uint32_t>(at + 24);
    if (size == kIn64) size = size_in_extra(entries, at + kHeader + name, extra);
    if (size > left) damaged("its records hold more bytes than the file");
    left -= size;
    at += kHeader + name + extra + comment;
  }
}

}  // namespace steptape::replayer
