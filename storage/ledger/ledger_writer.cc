#include "storage/ledger/ledger_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "steptape/error.h"
#include "storage/files/descriptor.h"
#include "storage/files/input_file.h"
#include "storage/ledger/ledger_file.h"
#include "storage/ledger/ledger_reader.h"
#include "storage/ledger/ledger_record.h"

namespace steptape::storage {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

}  // namespace

LedgerWriter::LedgerWriter(const std::filesystem::path& path, const trace::Digest& run,
                           FileSystem& files)
    : files_(files),
      path_(behind_links(files, path)),
      file_(files, files.open(path_, FileSystem::Access::kAppend, 0666)) {
  require_done(file_.number(), "open", path_);
  lock_ledger(files_, file_.number(), path_);
  const InputFile found(path_, files_);
  if (holds_no_header(found)) {
    begin(run, found);
  } else {
    go_on(found);
  }
  Folder(files_, path_).sync();
  buffer_.reserve(kBufferBytes + kRecordBytes);
}

LedgerWriter::~LedgerWriter() { close(); }

void LedgerWriter::begin(const trace::Digest& run, const InputFile& found) {
  if (found.bytes() > 0) require_done(files_.truncate(file_.number(), 0), "cut", path_);
  run_ = run;
  put_ledger_header(buffer_, run);
  seal_record();
  write_buffer();
  sync();
}

void LedgerWriter::go_on(const InputFile& found) {
  require_ledger(found, path_);
  LedgerScan scan = scan_ledger(found, [this](const trace::LedgerLine& line) {
    last_calls_.resize(std::max<std::size_t>(last_calls_.size(), line.step + 1U));
    last_calls_[line.step] = line.call;
  });
  if (!scan.damage.empty()) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: {}. Move it aside; `steptape ledger --partial` shows what is left",
                            path_.string(), scan.damage));
  }
  if (scan.torn_bytes > 0) require_done(files_.truncate(file_.number(), scan.bytes), "cut", path_);
  sync();  // a writer that was killed left that to the system
  run_ = scan.run;
  steps_ = std::move(scan.steps);
  last_calls_.resize(steps_.size());
  written_ = scan.bytes;
  is_marked_ = scan.is_closed;
}

std::uint16_t LedgerWriter::step(std::string_view name) {
  const auto known = std::ranges::find(steps_, name);
  if (known != steps_.end()) return static_cast<std::uint16_t>(known - steps_.begin());
  if (steps_.size() == kMaxSteps) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} steps, and no ledger has more", path_.string(), kMaxSteps));
  }
  const auto number = static_cast<std::uint16_t>(steps_.size());
  last_calls_.reserve(steps_.size() + 1);  // one is never longer than the other
  steps_.emplace_back(name);
  last_calls_.push_back(0);
  attempt([&] {
    do {
      const std::string_view text = name.substr(0, kNameBytes);
      name.remove_prefix(text.size());
      put_name(buffer_, {number, !name.empty(), text});
      seal_record();
    } while (!name.empty());
  });
  return number;
}

void LedgerWriter::append(const trace::LedgerLine& line) noexcept {
  const bool is_added = attempt([&] {
    if (line.step >= steps_.size() || line.call == 0) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("call {} of step {} of {} cannot be in a ledger", line.call,
                              line.step, steps_.size()));
    }
    put_line(buffer_, line);
    seal_record();
    ++buffered_lines_;
    last_calls_[line.step] = line.call;
  });
  if (!is_added) {
    ++lost_;
  } else if (buffer_.size() >= kBufferBytes) {
    attempt([this] { write_buffer(); });
  }
}

bool LedgerWriter::hand_over() noexcept {
  return attempt([this] {
    if (!buffer_.empty()) write_buffer();
  });
}

bool LedgerWriter::flush() noexcept {
  return attempt([this] {
    if (is_synced_) return;
    write_buffer();
    sync();
  });
}

void LedgerWriter::close() noexcept {
  if (file_.number() < 0) return;
  if (flush() && !is_marked_ && owner_.is_this_one()) {
    attempt([this] {
      put_mark(buffer_);
      seal_record();
      write_buffer();
    });
  }
  file_.close();
  is_silent_ = true;
}

void LedgerWriter::seal_record() {
  const std::uint64_t number = (written_ + buffer_.size()) / kRecordBytes;
  seal(buffer_, number, is_synced_ ? kSyncedBefore : 0);
  is_synced_ = is_marked_ = false;
}

void LedgerWriter::write_buffer() {
  owner_.require_this_one(path_);
  const int result = files_.write(file_.number(), bytes_of(buffer_));
  // No half record stays where that can be helped; whoever opens the file next cuts it too.
  if (result < 0) files_.truncate(file_.number(), written_);
  require_done(result, "write", path_);
  written_ += buffer_.size();
  buffer_.clear();
  unsynced_lines_ += std::exchange(buffered_lines_, 0);
}

void LedgerWriter::sync() {
  const int result = files_.sync(file_.number());
  // After a sync that failed the system forgets what it could not write: nobody knows of any line.
  if (result < 0) lost_ += unsynced_lines_;
  require_done(result, "sync", path_);
  unsynced_lines_ = 0;
  is_synced_ = true;
}

void LedgerWriter::stop() noexcept {
  problem_.note(std::current_exception());
  is_silent_ = true;
  lost_ += std::exchange(buffered_lines_, 0);
  buffer_.clear();
}

template <typename Action>
bool LedgerWriter::attempt(Action&& action) noexcept {
  if (is_silent_) return false;
  try {
    action();
    return true;
  } catch (const std::exception&) {
    stop();
    return false;
  }
}

}  // namespace steptape::storage
