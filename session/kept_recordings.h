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
  /// `head` says who records; the first recording begins the file.
  void add(const trace::Trace& head, const trace::Step& step, const trace::Recording& recording);
  /// Writes the steps of `trace`, its plans, behind what was added, and puts the file into its
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
