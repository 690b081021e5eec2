#include "storage/trace/stream_writer.h"

#include <fmt/format.h>

#include <utility>

#include "steptape/error.h"
#include "storage/trace/trace_writer.h"

namespace steptape::storage {

StreamWriter::StreamWriter(const std::filesystem::path& path, const trace::Trace& head,
                           const WriteOptions& options, FileSystem& files)
    : file_(path, files) {
  writer_ = std::make_unique<TraceWriter>(file_, options, Remember::kNewest);
  writer_->head(head);
  file_.sync();
}

StreamWriter::~StreamWriter() = default;

void StreamWriter::add(std::string_view step, std::string_view place,
                       const trace::Recording& recording) noexcept {
  ++lost_;
  attempt([&] {
    if (!is_valid(step, recording)) return;
    writer_->step(step, place);
    writer_->recording(recording);
    ++unsynced_;
    --lost_;
  });
}

void StreamWriter::add_account(const trace::Step& step) noexcept {
  attempt([&] { writer_->account(step); });
}

bool StreamWriter::is_valid(std::string_view step, const trace::Recording& recording) {
  try {
    trace::validate(recording);
    return true;
  } catch (const Error& error) {
    problem_.note(std::make_exception_ptr(
        Error(ErrorCode::kInvalidArgument,
              fmt::format("a recording of step {} was not written to {}: it is not valid: {}", step,
                          part().string(), error.what()))));
    return false;
  }
}

bool StreamWriter::flush() noexcept {
  return attempt([this] {
    if (unsynced_ > 0) sync();
  });
}

bool StreamWriter::finish() noexcept {
  if (!flush()) return false;
  return attempt([this] {
    writer_->finish();
    file_.commit();
    is_silent_ = true;
  });
}

void StreamWriter::sync() {
  try {
    file_.sync();
  } catch (const std::exception&) {
    // After a sync that failed the system forgets what it could not write: nobody knows of any.
    lost_ += unsynced_;
    throw;
  }
  unsynced_ = 0;
}

template <typename Action>
bool StreamWriter::attempt(Action&& action) noexcept {
  if (is_silent_) return false;
  const std::uint64_t whole = file_.bytes();
  try {
    owner_.require_this_one(part());
    action();
    return true;
  } catch (const std::exception&) {
    problem_.note(std::current_exception());
    is_silent_ = true;
    if (owner_.is_this_one()) file_.cut(whole);
    return false;
  }
}

}  // namespace steptape::storage
