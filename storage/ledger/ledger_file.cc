#include "storage/ledger/ledger_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "steptape/error.h"
#include "storage/files/descriptor.h"
#include "storage/files/input_file.h"
#include "storage/files/replace.h"
#include "storage/ledger/ledger_record.h"

namespace steptape::storage {
void lock_ledger(FileSystem& files, int descriptor, const std::filesystem::path& path) {
  const int result = files.lock(descriptor);
  if (result == -EWOULDBLOCK) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} is open in another process or session; choose another path, or end "
                            "that one",
                            path.string()));
  }
  // A file system without locks is better than no ledger.
  if (result != -EOPNOTSUPP && result != -ENOSYS) require_done(result, "lock", path);
}

// A machine that stopped while the file was made can leave nothing, zeros, or a part of the header.
// Lines come only when the header is on the disk.
bool holds_no_header(const InputFile& file) {
  if (file.bytes() > kRecordBytes) return false;
  const std::string bytes = file.read(0, file.bytes());
  if (bytes.find_first_not_of('\0') == std::string::npos) return true;
  const std::size_t length = std::min(bytes.size(), kLedgerMagic.size());
  const ByteView magic = std::as_bytes(std::span(kLedgerMagic));
  return bytes.size() < kRecordBytes &&
         std::ranges::equal(bytes_of(bytes).first(length), magic.first(length));
}

void require_ledger(const InputFile& file, const std::filesystem::path& path) {
  const std::string start = file.read(0, std::min<std::uint64_t>(file.bytes(), kRecordBytes));
  if (has_ledger_magic(bytes_of(start))) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      fmt::format("{} exists and is not a ledger; it was left as it is. Choose another path "
                  "or remove it",
                  path.string()));
}

std::optional<std::uint64_t> set_ledger_aside(const std::filesystem::path& path,
                                              FileSystem& files) {
  const std::filesystem::path target = behind_links(files, path);
  FileSystem::Status status;
  const int result = files.status_at(target, status);
  if (result == -ENOENT) return std::nullopt;
  require_done(result, "look at", target);
  const Descriptor locked(files, target, FileSystem::Access::kAppend, "open");
  lock_ledger(files, locked.number(), target);
  const InputFile file(target, files);
  if (holds_no_header(file)) return std::nullopt;
  require_ledger(file, target);
  return set_aside(files, target);
}

}  // namespace steptape::storage
