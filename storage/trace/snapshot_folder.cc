#include "storage/trace/snapshot_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

constexpr std::string_view kPrefix = "snapshot-";
constexpr std::string_view kSuffix = ".tape";

std::optional<std::uint64_t> number_in(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  if (name.size() <= kPrefix.size() + kSuffix.size()) return std::nullopt;
  const std::string_view digits =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return number;
}

}  // namespace

std::filesystem::path SnapshotFolder::path_of(std::uint64_t number) const {
  return folder_ / fmt::format("{}{:012}{}", kPrefix, number, kSuffix);
}

std::vector<std::uint64_t> SnapshotFolder::numbers() const {
  std::vector<std::uint64_t> numbers;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder_, error);
  if (error == std::errc::no_such_file_or_directory) return numbers;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::optional<std::uint64_t> number = number_in(name);
    if (number && path_of(*number).filename() == name) numbers.push_back(*number);
  }
  if (error) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot list {}: {}", folder_.string(), error.message()));
  }
  std::ranges::sort(numbers);
  return numbers;
}

void SnapshotFolder::keep(std::size_t count, std::uint64_t newest) const {
  std::vector<std::uint64_t> all = numbers();
  std::erase_if(all, [newest](std::uint64_t number) { return number > newest; });
  for (std::size_t i = 0; i + count < all.size(); ++i) files_.unlink(path_of(all[i]));
}

void SnapshotFolder::take() {
  const std::filesystem::path path = folder_ / "lock";
  Descriptor lock(files_, files_.open(path, FileSystem::Access::kAppend, 0666));
  require_done(lock.number(), "open", path);
  const int result = files_.lock(lock.number());
  if (result == -EWOULDBLOCK) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("another player keeps its snapshots in {}", folder_.string()));
  }
  require_done(result, "lock", path);
  lock_.emplace(std::move(lock));
  std::error_code error;
  std::filesystem::directory_iterator entry(folder_, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(kPrefix) && name.find(".tape.tmp.") != std::string::npos)
      files_.unlink(entry->path());
  }
}

}  // namespace steptape::storage
