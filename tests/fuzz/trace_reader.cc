#include <tbb/global_control.h>

#include "storage/trace/format.h"
#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/fuzz/bounded.h"
#include "tests/fuzz/resealed.h"
#include "tests/storage/sample.h"
#include "tests/trace/text/text_parse.h"
#include "trace/text/text.h"

/// A trace file of any bytes is read or refused within bounded work; `read`, `check` and `recover`
/// agree on it, and what was read survives being written again.
namespace steptape::fuzz {
namespace {

using storage::kSamplePath;

/// What protobuf reserves for a string before it finds that the string is longer than the message
/// that it lies in. It gives up after that.
constexpr std::uint64_t kReserved = 50'000'000;

/// As storage.BoundedWorkTest measures them.
constexpr Bound kRead = {2, storage::kMaxExpansion, kReserved};
constexpr Bound kCheck = {3, storage::kMaxExpansion, kReserved};

/// Each message that cannot be read is skipped.
constexpr Bound recover_bound(std::uint64_t blocks) {
  return {5, 2 * storage::kMaxExpansion, kReserved * (blocks + 1)};
}

void require_survives_writing(const trace::Trace& trace) {
  storage::MemoryFileSystem files;
  storage::write(trace, kSamplePath, {}, files);
  require(storage::read(kSamplePath, files) == trace, "what was read survives being written");
  require(trace::parse(trace::print(trace, trace::Contents::kBytes)) == trace,
          "what was read survives being printed");
}

void look_at(const std::string& bytes) {
  storage::MemoryFileSystem files;
  files.put(kSamplePath, bytes);
  const auto trace = bounded(files, bytes.size(), "read", kRead,
                             [&files] { return storage::read(kSamplePath, files); });
  const auto report = bounded(files, bytes.size(), "check", kCheck,
                              [&files] { return storage::check(kSamplePath, files); });
  require(report.has_value(), "check refuses no file");
  require(report->whole() == trace.has_value(), "check finds whole what read reads");
  storage::Report left;
  const auto recovered = bounded(files, bytes.size(), "recover", recover_bound(report->blocks),
                                 [&] { return storage::recover(kSamplePath, left, files); });
  if (!trace) return;
  require(recovered && *recovered == *trace && left.whole(), "recover gives what read gives");
  require_survives_writing(*trace);
}

}  // namespace
}  // namespace steptape::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace steptape::fuzz;
  static const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const std::string sealed = resealed(text);
  const std::string forged = reforged(text);
  look_at(text);
  if (sealed != text) look_at(sealed);
  if (forged != sealed) look_at(forged);
  return 0;
}
