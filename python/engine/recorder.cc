#include "python/engine/recorder.h"

#include "python/engine/followed.h"
#include "session/arguments.h"
#include "storage/trace/writer.h"

namespace steptape::python {

Recorder::Recorder(std::string name, std::string place, bool digests, bool timings)
    : step_{std::move(name), std::move(place), {}},
      detail_{digests ? recorder::Depth::kDigests : recorder::Depth::kPlain, timings} {}

void Recorder::begin() {
  open_ = std::make_unique<recorder::OpenRecording>(
      std::vector<recorder::Argument>(), session_.objects,
      recorder::interceptor(Interception::kFakeKey), detail_);
  recorder::FrontendHints::current()->said.follows_numbers = true;
  FollowedNumbers::current().clear();  // of the step before: the hints of both may lie in one place
}

std::size_t Recorder::end() {
  if (open_ == nullptr) return 0;
  recorder::Recorded recorded = open_->close({});
  open_.reset();
  if (!recorded.is_warm_up()) session::bind_followed_numbers(recorded);
  const std::size_t ops = recorded.recording.ops.size();
  recorded.recording.call = ++calls_;
  if (ops != 0) step_.recordings.push_back(std::move(recorded.recording));
  return ops;
}

void Recorder::write(const std::string& path, bool with_state) const {
  trace::Trace trace = session_.trace.contents(with_state);
  trace.steps.push_back(step_);
  storage::write(trace, path);
}

py::list Recorder::refusals() const {
  py::list list;
  for (const trace::Recording& recording : step_.recordings) {
    for (const Refusal& refusal : recording.refusals) list.append(refusal.text());
  }
  return list;
}

}  // namespace steptape::python
