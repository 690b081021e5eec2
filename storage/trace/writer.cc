#include "storage/trace/writer.h"

#include <fmt/format.h>

#include "steptape/error.h"
#include "storage/files/atomic_file.h"
#include "storage/trace/trace_writer.h"

namespace steptape::storage {
namespace {

/// What a reader would refuse is refused here, while the trace is still in memory.
void require_valid(const trace::Trace& trace, const std::filesystem::path& path) {
  try {
    trace::validate(trace);
  } catch (const Error& error) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot write {}: the trace is not valid: {}", path.string(), error.what()));
  }
}

}  // namespace

void write(const trace::Trace& trace, const std::filesystem::path& path,
           const WriteOptions& options, FileSystem& files) {
  require_valid(trace, path);
  AtomicFile file(path, files);
  TraceWriter writer(file, options, Remember::kAll);
  writer.head(trace);
  for (const trace::Step& step : trace.steps) {
    writer.step(step.name, step.place);
    for (const trace::Recording& recording : step.recordings) writer.recording(recording);
    writer.account(step);
  }
  for (const trace::Saved& saved : trace.state) writer.saved(saved);
  writer.finish();
  file.commit();
}

}  // namespace steptape::storage
