#include "session/keep/kept_recordings.h"

#include <utility>

#include "storage/trace/stream_writer.h"

namespace steptape::session {
namespace {

/// A machine that stops loses the recordings of about so long.
constexpr std::chrono::seconds kOften{1};

}  // namespace

KeptRecordings::KeptRecordings(std::string path) : path_(std::move(path)) {}

KeptRecordings::~KeptRecordings() = default;

void KeptRecordings::begin(const trace::Trace& head) {
  is_begun_ = true;
  try {
    writer_ = std::make_unique<storage::StreamWriter>(path_, head);
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

void KeptRecordings::add(const trace::Step& step, const trace::Recording& recording) {
  if (writer_ == nullptr) return;
  writer_->add(step.name, step.place, recording);
  if (const Clock::time_point now = Clock::now(); now - flushed_ > kOften) {
    writer_->flush();
    flushed_ = now;
  }
  note_problem();
}

void KeptRecordings::finish(const trace::Trace& trace) {
  if (writer_ == nullptr) return;
  for (const trace::Step& step : trace.steps) {
    for (const trace::Recording& recording : step.recordings) {
      writer_->add(step.name, step.place, recording);
    }
    writer_->add_account(step);
  }
  writer_->finish();
  note_problem();
}

void KeptRecordings::note_problem() {
  if (auto problem = writer_->problem()) problem_ = *std::move(problem);
}

std::string KeptRecordings::problem() const {
  if (problem_.empty() || writer_ == nullptr) return problem_;
  return problem_ + " (" + std::to_string(writer_->lost()) + " recordings lost)";
}

}  // namespace steptape::session
