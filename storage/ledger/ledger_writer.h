#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files/descriptor.h"
#include "storage/trace/first_problem.h"
#include "trace/ledger.h"

namespace steptape::storage {

class InputFile;

/// Appends to a ledger file; what it writes is ledger_record.h's. It goes on after the last record
/// that is whole, and cuts what a machine that stopped left torn. Of what was appended since the
/// last flush a loss of power may take any part, and the end of the process what is still buffered,
/// at most 64 KiB. No failure reaches the training: the first one is kept, from then on nothing is
/// written, and lines are counted as lost. A forked child writes nothing. One thread at a time.
class LedgerWriter {
 public:
  /// Opens the file, or makes it for the run that `run` stands for. Throws Error:
  /// (failed_precondition) when the file is not a ledger, or another writer has it open;
  /// (data_loss) when it is damaged; (unsupported) when a newer Steptape wrote it; (io). `files`
  /// must outlive the object.
  LedgerWriter(const std::filesystem::path& path, const trace::Digest& run,
               FileSystem& files = operating_system());
  /// Closes.
  ~LedgerWriter();
  LedgerWriter(const LedgerWriter&) = delete;
  LedgerWriter& operator=(const LedgerWriter&) = delete;

  /// Of the run that began the file.
  const trace::Digest& run() const noexcept { return run_; }
  /// The number of the step of this name in the file; a new name is appended. Throws Error
  /// (invalid_argument) when there are 65,535 others.
  std::uint16_t step(std::string_view name);
  /// The number of the last call in the file; 0 where there is none.
  std::uint64_t last_call(std::uint16_t step) const { return last_calls_.at(step); }

  /// `line.step` comes from `step`, and `line.call` is not 0.
  void append(const trace::LedgerLine& line) noexcept;
  /// Gives the system what is buffered: it outlives the process then, and not yet the machine.
  bool hand_over() noexcept;
  /// Whether all that was appended is on the disk.
  bool flush() noexcept;
  /// Flushes, and leaves the file to others. What is appended after it is lost.
  void close() noexcept;

  /// What went wrong, once.
  std::optional<std::string> problem() { return problem_.tell(); }
  /// Lines that were appended and did not get into the file, or of which nobody knows.
  std::uint64_t lost() const noexcept { return lost_; }

 private:
  void begin(const trace::Digest& run, const InputFile& found);
  void go_on(const InputFile& found);
  void seal_record();
  void write_buffer();
  void sync();
  void stop() noexcept;
  template <typename Action>
  bool attempt(Action&& action) noexcept;

  FileSystem& files_;
  std::filesystem::path path_;  ///< what a symbolic link points to, not the link
  Descriptor file_;
  OwningProcess owner_;
  trace::Digest run_;
  std::vector<std::string> steps_;
  std::vector<std::uint64_t> last_calls_;  ///< of each step
  std::string buffer_;
  std::uint64_t written_ = 0;  ///< bytes in the file
  std::uint64_t buffered_lines_ = 0;
  std::uint64_t unsynced_lines_ = 0;  ///< of those in the file
  bool is_synced_ = false;            ///< all records so far are on the disk
  bool is_marked_ = false;            ///< the last record is a mark
  bool is_silent_ = false;
  FirstProblem problem_;
  std::uint64_t lost_ = 0;
};

}  // namespace steptape::storage
