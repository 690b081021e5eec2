#include "replayer/player/snapshots.h"

#include <filesystem>

#include "storage/trace/reader.h"

namespace steptape {
namespace replayer {
namespace {

const SnapshotOptions& checked(const SnapshotOptions& options) {
  if (options.folder.empty() || options.keep == 0 || options.every_seconds < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "snapshots need a folder, at least one to keep, and no negative time");
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) {
    throw Error(ErrorCode::kIo,
                "cannot make the folder " + options.folder + ": " + error.message());
  }
  return options;
}

}  // namespace

Snapshots::Snapshots(const SnapshotOptions& options, std::uint64_t runs)
    : options_(checked(options)), folder_(options_.folder) {
  folder_.take();
  for (const std::uint64_t number : folder_.numbers()) {
    // a damaged one is in nobody's way
    if (number <= runs || !storage::check(folder_.path_of(number)).whole()) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                path_of(number) + " is of a training that went further than this one (" +
                    std::to_string(runs) +
                    " steps): go on from newest_snapshot(), or choose another folder");
  }
}

bool Snapshots::is_due_after_step() {
  ++steps_;
  if (options_.every_steps != 0 && steps_ >= options_.every_steps) return true;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - last_;
  return options_.every_seconds > 0 && passed.count() >= options_.every_seconds;
}

void Snapshots::written(std::uint64_t runs) {
  steps_ = 0;
  last_ = std::chrono::steady_clock::now();
  folder_.keep(options_.keep, runs);
}

}  // namespace replayer

std::string newest_snapshot(const std::string& folder) {
  const storage::SnapshotFolder snapshots(folder);
  const std::vector<std::uint64_t> numbers = snapshots.numbers();
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    const std::string path = snapshots.path_of(*number).string();
    if (storage::check(path).whole()) return path;
  }
  return "";
}

}  // namespace steptape
