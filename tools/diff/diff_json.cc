#include "tools/diff/diff_json.h"

#include "diff/op_stream.h"
#include "tools/cli/json.h"
#include "tools/diff/numerics.h"
#include "tools/diff/op_times.h"
#include "tools/dump/info_json.h"
#include "tools/dump/ledger_view.h"

namespace steptape::tools {
namespace {

using diff::Section;

Json findings_json(const diff::Findings& findings, const DiffPolicy& policy) {
  Json json = Json::object();
  for (const Section section : diff::sections()) {
    if (!policy.tells(section) || findings.of(section).empty()) continue;
    json[std::string(name_of(section))] = each(findings.of(section), finding_json);
  }
  return json;
}

Json edit_json(const diff::Edit& edit, const diff::OpStream& a, const diff::OpStream& b) {
  const bool is_insert = edit.kind == diff::EditKind::kInsert;
  const diff::StreamOp op = is_insert ? b.op(edit.b) : a.op(edit.a);
  Json json = {{"kind", name_of(edit.kind)},
               {"a", number_or_null(edit.a, trace::kNone)},
               {"b", number_or_null(edit.b, trace::kNone)},
               {"call", op.call},
               {"phase", op.phase == trace::Phase::kForward ? "forward" : "backward"},
               {"op", op.text}};
  if (edit.a != trace::kNone && edit.b != trace::kNone) {
    json["matched_by"] = name_of(edit.matched_by);
  }
  if (edit.kind == diff::EditKind::kChange) json["changes"] = changes_json(edit.changes);
  return json;
}

Json pairs_json(const std::vector<diff::OpPair>& pairs) {
  Json json = Json::object();
  for (const auto by :
       {diff::MatchedBy::kModuleCall, diff::MatchedBy::kSequence, diff::MatchedBy::kContent}) {
    json[std::string(name_of(by))] = std::ranges::count(pairs, by, &diff::OpPair::matched_by);
  }
  return json;
}

Json recording_json(const diff::RecordingDiff& diff, const trace::Recording& a,
                    const trace::Recording& b, const DiffPolicy& policy) {
  Json json = {{"a", diff.pair.a},
               {"b", diff.pair.b},
               {"paired_by", name_of(diff.pair.paired_by)},
               {"ops_a", a.ops.size()},
               {"ops_b", b.ops.size()},
               {"ops_matched_by", pairs_json(diff.stream.alignment.pairs)}};
  if (diff.call != 0) json["call"] = diff.call;
  const diff::OpStream stream_a(a);
  const diff::OpStream stream_b(b);
  if (policy.tells(Section::kNumerics)) {
    json["numerics"] = numerics_json(diff.numerics, stream_a, stream_b);
  }
  if (policy.tells(Section::kStructure)) {
    json["edits"] = each(diff.stream.edits, [&](const diff::Edit& edit) {
      return edit_json(edit, stream_a, stream_b);
    });
    json["modules"] = stats_json(diff.modules);
  }
  json["findings"] = findings_json(diff.findings, policy);
  return json;
}

}  // namespace

Json changes_json(const std::vector<diff::OpChange>& changes) {
  return each(changes, [](const diff::OpChange& change) {
    return Json{{"aspect", name_of(change.aspect)},
                {"place", change.place},
                {"expected", change.expected},
                {"found", change.found}};
  });
}

Json stats_json(const std::vector<diff::ModuleStat>& stats) {
  return each(stats, [](const diff::ModuleStat& stat) {
    return Json{{"module", stat.module},   {"ops_a", stat.ops_a},       {"ops_b", stat.ops_b},
                {"removed", stat.removed}, {"inserted", stat.inserted}, {"moved", stat.moved},
                {"changed", stat.changed}};
  });
}

Json diff_json(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b,
               const DiffPolicy& policy) {
  Json counts = Json::object();
  for (const Section section : diff::sections()) {
    if (policy.tells(section)) counts[std::string(name_of(section))] = diff.count(section);
  }
  Json steps = Json::array();
  for (const diff::StepDiff& step : diff.steps) {
    const auto& recordings_a = a.find_step(step.name)->recordings;
    const auto& recordings_b = b.find_step(step.name)->recordings;
    const auto pair_json = [&](const diff::RecordingDiff& recording) {
      return recording_json(recording, recordings_a[recording.pair.a],
                            recordings_b[recording.pair.b], policy);
    };
    steps.push_back({{"name", step.name},
                     {"findings", findings_json(step.findings, policy)},
                     {"recordings", each(step.recordings, pair_json)},
                     {"calls_only_in_a", step.calls_only_in_a},
                     {"calls_only_in_b", step.calls_only_in_b}});
    if (!policy.tells(Section::kTime)) continue;
    if (step.op_times) steps.back()["op_times"] = op_times_json(*step.op_times);
    if (!step.op_times_only_in.empty()) {
      steps.back()["op_times_only_in"] = step.op_times_only_in;
    }
  }
  Json json = {{"differ", policy.differs(diff)},
               {"counts", counts},
               {"findings", findings_json(diff.findings, policy)},
               {"steps", steps}};
  if (diff.ledger) json["ledger"] = ledger_diff_json(*diff.ledger);
  if (!diff.ledger_only_in.empty()) json["ledger_only_in"] = diff.ledger_only_in;
  return json;
}

}  // namespace steptape::tools
