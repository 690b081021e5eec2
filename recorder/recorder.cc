#include "recorder/recorder.h"

#include "recorder/context/modules.h"
#include "recorder/frontend_hints.h"
#include "recorder/intercept/interceptor.h"
#include "recorder/recording_state.h"
#include "recorder/tape.h"
#include "steptape/error.h"

namespace steptape::recorder {
namespace {

void write_returned(trace::Recording& recording, const Returned& returned) {
  for (const trace::Value& number : returned.numbers) {
    recording.numbers.emplace_back().value = number;
  }
  recording.observed = static_cast<trace::Index>(returned.observed);
}

}  // namespace

/// What ends with the step: what listens to the thread, in the order in which it began.
struct OpenRecording::Listening {
  Listening(const std::shared_ptr<Tape>& tape, Interceptor& interceptor)
      : noting(FrontendHints::make_current(&tape->state().hints)),
        scope(interceptor.listen(tape)) {}

  const ScopeWatch scopes;
  const FrontendHints::Scope noting;
  const std::unique_ptr<Interceptor::Scope> scope;
};

OpenRecording::OpenRecording(std::vector<Argument> arguments, const live::Objects& objects,
                             Interceptor& interceptor, const Detail& detail)
    : arguments_(std::move(arguments)) {
  if (is_recording()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "a recording is active in this thread: a step cannot be recorded inside another");
  }
  objects.check_alive();
  tape_ = std::make_shared<Tape>(objects, detail);
  tape_->guarded([&] {
    write_entry(tape_->state(), arguments_);
    tape_->note_streams();
    if (detail.depth >= Depth::kDigests) write_entry_digests(tape_->state());
    if (detail.depth >= Depth::kBytes) copy_entry(tape_->state(), found_, generators_found_);
  });
  listening_ = std::make_unique<Listening>(tape_, interceptor);
}

OpenRecording::~OpenRecording() {
  listening_.reset();
  // a thread of the step that goes on must not write to objects that may be gone
  tape_->close();
}

Recorded OpenRecording::close(Returned returned) {
  Recorded recorded;
  recorded.results = std::move(returned.results);
  recorded.found = std::move(found_);
  recorded.generators_found = std::move(generators_found_);
  tape_->guarded([&] { write_returned(tape_->state().recording, returned); });
  tape_->end();
  listening_.reset();
  tape_->guarded([&] { write_exit(tape_->state(), arguments_, recorded); });
  recorded.hints = std::move(tape_->state().hints);
  recorded.recording = std::move(tape_->state().recording);
  recorded.recording.effects = recorded.hints.take_effects();
  for (Refusal& refusal : recorded.hints.take_refusals()) {
    recorded.recording.refusals.push_back(std::move(refusal));
  }
  return recorded;
}

bool is_recording() noexcept { return active_listener() != nullptr; }

Recorded record(const StepFunction& step, const std::vector<Argument>& arguments,
                const live::Objects& objects, Interceptor& interceptor, const Detail& detail) {
  OpenRecording recording(arguments, objects, interceptor, detail);
  return recording.close(step());
}

}  // namespace steptape::recorder
