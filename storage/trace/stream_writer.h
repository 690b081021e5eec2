#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "storage/files/descriptor.h"
#include "storage/files/part_file.h"
#include "storage/trace/first_problem.h"
#include "storage/trace/writer.h"
#include "trace/model.h"

namespace steptape::storage {

class TraceWriter;

/// Writes a trace while the training runs that it is of, recording by recording. It grows as
/// "run.tape.part" beside its place and comes there when it is finished; until then, and when the
/// process is killed, `recover` reads it. Of earlier recordings it keeps the newest of each step
/// and 12 bytes of index a block. No failure reaches the training: the first one is kept, from then
/// on nothing is written, and recordings are counted as lost; those before stay readable. A forked
/// child writes nothing. One thread at a time.
class StreamWriter {
 public:
  /// Begins the file with what `head` says of its maker; steps and state of `head` are not written.
  /// What an earlier process left under the name is set aside as "run.tape.part.1", or the first
  /// number that is free. Throws Error: (failed_precondition) when the path holds something that is
  /// no trace, or another process writes it; (io). `files` must outlive the object.
  StreamWriter(const std::filesystem::path& path, const trace::Trace& head,
               const WriteOptions& options = {}, FileSystem& files = operating_system());
  /// Without `finish` the file stays where it grew, as after a kill.
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  /// Where the file grows.
  const std::filesystem::path& part() const noexcept { return file_.part(); }

  /// The next recording of the step of this name, which begins with it or goes on. A recording that
  /// `trace::validate` refuses is lost alone; others follow.
  void add(std::string_view step, std::string_view place,
           const trace::Recording& recording) noexcept;
  /// What became of its calls; the last one counts.
  void add_account(const trace::Step& step) noexcept;
  /// Whether all that was added, but for what is lost, is on the disk.
  bool flush() noexcept;
  /// Flushes, ends the file and puts it into its place, over an older trace. Whether that could be
  /// done; otherwise it stays where it grew. What is added after it is lost.
  bool finish() noexcept;

  /// What went wrong first, once.
  std::optional<std::string> problem() { return problem_.tell(); }
  /// Recordings that were added and did not get into the file, or of which nobody knows.
  std::uint64_t lost() const noexcept { return lost_; }

 private:
  bool is_valid(std::string_view step, const trace::Recording& recording);
  void sync();
  template <typename Action>
  bool attempt(Action&& action) noexcept;

  PartFile file_;
  OwningProcess owner_;
  std::unique_ptr<TraceWriter> writer_;
  std::uint64_t unsynced_ = 0;  ///< recordings in the file
  bool is_silent_ = false;
  FirstProblem problem_;
  std::uint64_t lost_ = 0;
};

}  // namespace steptape::storage
