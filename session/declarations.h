#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "guards/entry.h"
#include "steptape/pack.h"
#include "trace/model.h"

namespace steptape::session {

/// What the program declares that steps read beside their arguments (Session::host,
/// Session::guard), and what it gave in the call that is under way.
class Declarations {
 public:
  struct Declaration {
    std::string name;
    std::function<pack::Leaf()> function;
    /// It only looks at what a place holds, and may be asked when a trace is saved.
    bool is_place = false;
    std::vector<trace::Leaf> under = {};  ///< of a place that is looked up: where they lead
    /// The front end tells which calls of a step ask for it (note_use).
    bool tells_use = false;
    bool is_used = false;  ///< in the outermost call that is under way, or was the newest
  };
  void add_host_value(Declaration value) { host_values_.push_back(std::move(value)); }
  void add_fact(Declaration fact) { facts_.push_back(std::move(fact)); }
  /// What places of the program's hold whose tensors are inputs (trace::HeldInput); may be asked
  /// when a trace is saved.
  struct Held {
    std::string path;
    std::string kind;      ///< as trace::HeldPlace::found
    bool is_left = false;  ///< a step has found there what a call before it had left
    std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< each as in trace::HeldInput
  };
  void look_at_places(std::function<std::vector<Held>()> look) { look_ = std::move(look); }
  bool has(const std::string& name) const;
  void note_use(const std::string& name);
  const std::vector<Declaration>& host_values() const { return host_values_; }
  void clear_host_values() { host_values_.clear(); }

  /// Calls all declared functions.
  guards::Declared ask() const;

  /// A call of a step: of the session's outermost, now() is there while this lives. The functions
  /// are called once in it, whatever steps it contains.
  class Call {
   public:
    explicit Call(Declarations& declarations);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Declarations& declarations_;
    bool is_outermost_;
  };
  /// What the functions gave in the outermost call that is under way.
  const std::optional<guards::Declared>& now() const { return now_; }

  /// Writes names and values into a recording: none of what the call has not asked for.
  void describe(const guards::Declared& declared, trace::Recording& recording) const;
  /// Whether the places that a front end declares hold what a plan of this recording can begin
  /// with: a number where it found one, what it found where that was none, and a tensor like the
  /// one that it carries on.
  bool fits_places(const trace::Recording& recording) const;
  /// The numbers of the newest call for a trace that is saved after it; those of places as they are
  /// now.
  std::vector<trace::Saved> numbers() const;
  /// Has the recording carry on, for players, what stands in places where steps find what they have
  /// left.
  void describe_places(trace::Recording& recording) const;
  /// What it carries on, as it is now: memory by the first place that lies in it; none where the
  /// places hold something of another kind. Nothing where it does not fit, cannot be carried on, or
  /// where a place that the program sets holds something of another kind.
  std::optional<std::vector<trace::Saved>> carried(const trace::Recording& recording) const;
  /// Of what kind what stands in the places is now, for those in which steps find what they have
  /// left.
  std::vector<trace::Saved> kinds() const;

 private:
  std::vector<Declaration> host_values_;
  std::vector<Declaration> facts_;
  std::function<std::vector<Held>()> look_;
  std::optional<guards::Declared> now_;
  guards::Declared last_;  ///< in the newest call
};

}  // namespace steptape::session
