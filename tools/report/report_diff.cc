#include <map>

#include "diff/op_stream.h"
#include "tools/cli/json.h"
#include "tools/diff/diff_json.h"
#include "tools/diff/diff_verdict.h"
#include "tools/diff/op_times.h"
#include "tools/dump/info_json.h"
#include "tools/report/report_data.h"

namespace steptape::tools {
namespace {

/// The rows of two op streams. Ops that have a partner at the other side and were not moved lead
/// down both; what lies between two such pairs stands before the second, a's side first.
class Rows {
 public:
  Rows(const diff::StreamDiff& diff, const trace::Recording& a, const trace::Recording& b)
      : diff_(diff), a_(a), b_(b) {
    for (const diff::Edit& edit : diff.edits) {
      if (edit.kind == diff::EditKind::kChange) changes_[edit.a] = &edit;
    }
    for (const diff::OpPair& pair : diff.alignment.pairs) {
      if (!pair.is_moved) continue;
      moved_a_[pair.a] = &pair;
      moved_b_[pair.b] = &pair;
    }
  }

  Json take() {
    for (const diff::OpPair& pair : diff_.alignment.pairs) {
      if (pair.is_moved) continue;
      put_between(pair.a, pair.b);
      put_pair(pair);
      next_a_ = pair.a + 1;
      next_b_ = pair.b + 1;
    }
    put_between(static_cast<trace::Index>(a_.recording().ops.size()),
                static_cast<trace::Index>(b_.recording().ops.size()));
    flush();
    return std::move(rows_);
  }

 private:
  void put_between(trace::Index end_a, trace::Index end_b) {
    for (; next_a_ < end_a; ++next_a_) {
      const auto moved = moved_a_.find(next_a_);
      if (moved == moved_a_.end()) {
        put_edit("remove", next_a_, trace::kNone);
      } else {
        put_edit("move", moved->second->a, moved->second->b)["side"] = "a";
        add_how(*moved->second);
      }
    }
    for (; next_b_ < end_b; ++next_b_) {
      const auto moved = moved_b_.find(next_b_);
      if (moved == moved_b_.end()) {
        put_edit("insert", trace::kNone, next_b_);
      } else {
        put_edit("move", moved->second->a, moved->second->b)["side"] = "b";
        add_how(*moved->second);
      }
    }
  }

  void put_pair(const diff::OpPair& pair) {
    if (changes_.contains(pair.a)) {
      put_edit("change", pair.a, pair.b);
      add_how(pair);
      return;
    }
    if (run_ > 0 && pair.matched_by == run_by_) {
      ++run_;
      return;
    }
    flush();
    run_a_ = pair.a;
    run_b_ = pair.b;
    run_ = 1;
    run_by_ = pair.matched_by;
  }

  /// Ends the run of equal ops.
  void flush() {
    if (run_ == 0) return;
    rows_.push_back({{"same", {run_a_, run_b_, run_}}, {"matched_by", name_of(run_by_)}});
    run_ = 0;
  }

  Json& put_edit(const char* kind, trace::Index a, trace::Index b) {
    flush();
    Json row = {{"kind", kind}};
    if (a != trace::kNone) row["a"] = {{"op", a}, {"call", call_of(a_, a)}, {"text", text(a_, a)}};
    if (b != trace::kNone) row["b"] = {{"op", b}, {"call", call_of(b_, b)}, {"text", text(b_, b)}};
    rows_.push_back(std::move(row));
    return rows_.back();
  }

  /// Adds to the last row how its ops were paired and in what they differ.
  void add_how(const diff::OpPair& pair) {
    Json& row = rows_.back();
    row["matched_by"] = name_of(pair.matched_by);
    const auto changed = changes_.find(pair.a);
    if (changed != changes_.end()) row["changes"] = changes_json(changed->second->changes);
  }

  static std::string text(const diff::OpStream& stream, trace::Index op) {
    return stream.op(op).text;
  }
  static std::string call_of(const diff::OpStream& stream, trace::Index op) {
    return stream.call_of(stream.recording().ops[op]);
  }

  const diff::StreamDiff& diff_;
  diff::OpStream a_, b_;
  std::map<trace::Index, const diff::Edit*> changes_;              ///< by op of a
  std::map<trace::Index, const diff::OpPair*> moved_a_, moved_b_;  ///< by op
  trace::Index next_a_ = 0, next_b_ = 0;
  trace::Index run_a_ = 0, run_b_ = 0;
  std::size_t run_ = 0;
  diff::MatchedBy run_by_ = diff::MatchedBy::kSequence;
  Json rows_ = Json::array();
};

Json findings_json(const diff::Findings& findings) {
  Json json = Json::array();
  for (const diff::Section section : diff::sections()) {
    for (const trace::Finding& finding : findings.of(section)) {
      json.push_back({{"section", name_of(section)}});
      json.back().update(finding_json(finding));
    }
  }
  return json;
}

}  // namespace

Json report_diff(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b) {
  Json counts = Json::object();
  for (const diff::Section section : diff::sections()) {
    counts[std::string(name_of(section))] = diff.count(section);
  }
  const auto pair_json = [](const diff::RecordingDiff& pair, const trace::Recording& of_a,
                            const trace::Recording& of_b) {
    return Json{
        {"a", pair.pair.a},
        {"b", pair.pair.b},
        {"paired_by", name_of(pair.pair.paired_by)},
        {"call", pair.call},
        {"is_beside", pair.is_beside},
        {"ops_a", of_a.ops.size()},
        {"ops_b", of_b.ops.size()},
        {"rows", Rows(pair.stream, of_a, of_b).take()},
        {"modules", stats_json(pair.modules)},
        {"numerics", report_numerics(pair.numerics, diff::OpStream(of_a), diff::OpStream(of_b))},
        {"findings", findings_json(pair.findings)}};
  };
  const auto step_json = [&](const diff::StepDiff& step) {
    const auto& recordings_a = a.find_step(step.name)->recordings;
    const auto& recordings_b = b.find_step(step.name)->recordings;
    return Json{{"name", step.name},
                {"findings", findings_json(step.findings)},
                {"times", step.op_times ? op_times_json(*step.op_times) : Json()},
                {"times_only_in", step.op_times_only_in},
                {"recordings", each(step.recordings, [&](const diff::RecordingDiff& pair) {
                   return pair_json(pair, recordings_a[pair.pair.a], recordings_b[pair.pair.b]);
                 })}};
  };
  return {{"differs", DiffPolicy({}, {}).differs(diff)},
          {"counts", counts},
          {"findings", findings_json(diff.findings)},
          {"steps", each(diff.steps, step_json)}};
}

}  // namespace steptape::tools
