#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "trace/model.h"

namespace steptape::storage {
class StreamWriter;
}

namespace steptape::session {

/// The recordings that Options::record asked for. They are in no memory but in a file that grows
/// beside the trace, "run.tape.part", and takes its place when the session ends. No failure reaches
/// the training.
class KeptRecordings {
 public:
  explicit KeptRecordings(std::string path);
  ~KeptRecordings();
  KeptRecordings(const KeptRecordings&) = delete;
  KeptRecordings& operator=(const KeptRecordings&) = delete;

  bool is_begun() const { return is_begun_; }
  /// Begins the file; `head` says who records.
  void begin(const trace::Trace& head);
  /// Nothing where the file could not be begun.
  void add(const trace::Step& step, const trace::Recording& recording);
  /// Writes the steps of `trace`, its plans, after what was added, and puts the file into its
  /// place. Nothing where nothing was added.
  void finish(const trace::Trace& trace);
  /// What went wrong, and what it cost; empty where nothing did.
  std::string problem() const;

 private:
  using Clock = std::chrono::steady_clock;

  void note_problem();

  std::string path_;
  std::unique_ptr<storage::StreamWriter> writer_;
  bool is_begun_ = false;
  Clock::time_point flushed_ = {};
  std::string problem_;
};

}  // namespace steptape::session
