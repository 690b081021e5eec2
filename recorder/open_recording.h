#pragma once

#include <memory>
#include <vector>

#include "recorder/recorder.h"

namespace steptape::recorder {

/// A recording that is under way in this thread, from its making until `close`; for steps that are
/// no function. One that goes without `close` leaves the thread as it was before it.
class OpenRecording {
 public:
  /// As `record`. `objects` and `interceptor` must outlive this.
  OpenRecording(std::vector<Argument> arguments, const live::Objects& objects,
                Interceptor& interceptor, const Detail& detail = {});
  ~OpenRecording();
  OpenRecording(const OpenRecording&) = delete;
  OpenRecording& operator=(const OpenRecording&) = delete;

  /// Ends it and gives what the step did; `returned` is what came out of it.
  Recorded close(Returned returned);

 private:
  struct Listening;

  std::vector<Argument> arguments_;
  std::vector<trace::Blob> found_;
  std::vector<trace::Blob> generators_found_;
  std::shared_ptr<class Tape> tape_;
  std::unique_ptr<Listening> listening_;
};

}  // namespace steptape::recorder
