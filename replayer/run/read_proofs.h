#pragma once

#include <string>
#include <utility>
#include <vector>

#include "replayer/numbers/numbers_at.h"
#include "replayer/run/changed.h"
#include "trace/model.h"
#include "trace/proved_values.h"

namespace steptape::replayer {

/// A run was undone, for a read gave a value at which its plan was not proved.
struct Unproved : Changed {
  Unproved(Verdict what, trace::Index of)
      : Changed(RefusalCode::kHostRead, std::move(what)), read(of) {}
  trace::Index read;  ///< in Recording::reads
};

/// The values of host reads at which a plan was proved, one set for each of Recording::reads. Reads
/// that may give any value (ReadUse::kFree) are held against it in the runs of a thread while a
/// Scope lives there: their values are known in mid-run alone.
class ReadProofs {
 public:
  /// Proved at what `recording`, the plan's own, has read.
  explicit ReadProofs(const trace::Recording& recording);

  bool holds(trace::Index read, double value) const;
  /// From now on the read may give the proved values alone.
  bool is_pinned(trace::Index read) const { return numbers_[read].is_pinned; }
  void pin(trace::Index read) { numbers_[read].is_pinned = true; }
  /// The plan was proved at these as well.
  void add(const Numbers& numbers);
  /// Those that another recording has at values that were not proved. False where there are none.
  bool pin_others(const Numbers& numbers);

  /// Of the runs of this thread, or null.
  static const ReadProofs* current() noexcept;

  class Scope {
   public:
    explicit Scope(const ReadProofs* proofs);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const ReadProofs* previous_;
  };

 private:
  struct Read {
    std::string path;
    trace::ProvedValues proved = {};
    bool is_pinned = false;
  };
  std::vector<Read> numbers_;
};

}  // namespace steptape::replayer
