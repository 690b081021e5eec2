#pragma once

#include <memory>
#include <string>

#include "python/engine/tracked.h"
#include "recorder/recorder.h"
#include "trace/model.h"

namespace steptape::python {

/// Records steps that are not a function: what runs between `begin` and `end`. Makes no plans.
/// Needs the GIL throughout.
class Recorder : public Tracked {
 public:
  Recorder(std::string name, std::string place, bool digests, bool timings);

  /// Starts to record this thread. Throws Error (failed_precondition) inside another recording,
  /// (unsupported) where ops cannot be intercepted.
  void begin();
  /// Ends it; gives the number of ops. A recording without ops is left out.
  std::size_t end();
  /// Writes the recordings and, if `with_state`, the bytes of what is tracked. Throws Error (io).
  void write(const std::string& path, bool with_state) const;
  py::list refusals() const;

 private:
  trace::Step step_;
  recorder::Detail detail_;
  std::uint64_t calls_ = 0;
  std::unique_ptr<recorder::OpenRecording> open_;
};

}  // namespace steptape::python
