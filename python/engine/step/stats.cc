#include "python/engine/step/stats.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "session/observe/account.h"
#include "session/observe/journal.h"
#include "trace/refusals.h"

namespace steptape::python {
namespace {

/// None for a plan of the CPU.
py::object as_dict(const DeviceStats& device) {
  if (device.device.empty()) return py::none();
  py::dict dict;
  dict["device"] = device.device;
  dict["graphs"] = device.graphs;
  dict["nodes"] = device.nodes;
  dict["updated"] = device.updated;
  dict["grouped"] = device.grouped;
  dict["groups"] = device.groups;
  dict["ahead"] = device.ahead;
  py::list between;
  for (const std::string& call : device.between) between.append(call);
  dict["between"] = std::move(between);
  dict["captures"] = device.captures;
  dict["captured_for"] = device.captured_for;
  dict["capture_us"] = device.capture_us;
  dict["launch_us"] = device.launch_us;
  dict["pool_bytes"] = device.pool_bytes;
  dict["static_bytes"] = device.static_bytes;
  py::list copies;
  for (const TensorCopy& copy : device.copies) {
    copies.append(py::dict(py::arg("path") = copy.path, py::arg("bytes") = copy.bytes,
                           py::arg("why") = copy.why, py::arg("remedy") = copy.remedy));
  }
  dict["copies"] = std::move(copies);
  return dict;
}

py::dict as_dict(const PlanStats& plan) {
  py::dict dict;
  dict["number"] = plan.number;
  dict["ops"] = plan.ops;
  dict["calls"] = plan.calls;
  dict["prepared"] = plan.prepared;
  dict["stages"] = plan.stages;
  py::dict unprepared;
  for (const CountedReason& each : plan.unprepared) unprepared[py::str(each.reason)] = each.calls;
  dict["unprepared"] = std::move(unprepared);
  dict["lacks_blas"] = plan.lacks_blas;
  dict["device"] = as_dict(plan.device);
  dict["replays"] = plan.replays;
  dict["rebinds"] = plan.rebinds;
  py::list nondeterministic;
  for (const NondeterministicOp& op : plan.nondeterministic) {
    nondeterministic.append(py::dict(py::arg("op") = op.op, py::arg("op_index") = op.op_index,
                                     py::arg("module") = op.module, py::arg("place") = op.place,
                                     py::arg("spread") = op.spread,
                                     py::arg("largest_difference") = op.largest_difference));
  }
  dict["nondeterministic"] = nondeterministic;
  dict["arena_bytes"] = plan.arena_bytes;
  dict["temporary_bytes"] = plan.temporary_bytes;
  dict["max_live_bytes"] = plan.max_live_bytes;
  dict["plan_us"] = plan.plan_us;
  dict["warm_start"] = plan.is_warm_start;
  return dict;
}

py::dict as_dict(const CountedRefusal& counted, const Words& words) {
  const Refusal& refusal = counted.refusal;
  const std::string place = session::line_in(refusal.place);
  const std::size_t colon = place.rfind(':');
  py::dict dict;
  dict["code"] = std::string(name_of(refusal.code));
  dict["reason"] = words.named(refusal.message);
  dict["op"] = refusal.op;
  dict["module"] = refusal.module;
  dict["file"] = place.empty() ? "" : place.substr(0, colon);
  dict["line"] = place.empty() ? 0 : std::stoi(place.substr(colon + 1));
  dict["remedy"] = words.remedy_for(refusal);
  dict["times"] = counted.times;
  return dict;
}

py::dict as_dict(const Verdict& verdict, std::uint64_t last_held, const Words& words) {
  py::dict dict;
  dict["kind"] = std::string(name_of(verdict.kind));
  dict["path"] = words.named(verdict.path);
  dict["expected"] = verdict.expected;
  dict["found"] = verdict.found;
  dict["last_held"] = last_held;
  dict["text"] = words.named(session::text_of(verdict, last_held));
  return dict;
}

py::dict as_dict(const CountedVerdict& counted, const Words& words) {
  py::dict dict = as_dict(counted.verdict, counted.last_held, words);
  dict["times"] = counted.times;
  return dict;
}

py::dict as_dict(const VariantVerdict& verdict, const Words& words) {
  py::dict dict = as_dict(verdict.verdict, verdict.last_held, words);
  dict["variant"] = verdict.variant;
  return dict;
}

template <typename T, typename... Words>
py::list list_of(const std::vector<T>& values, const Words&... words) {
  py::list list;
  for (const T& value : values) list.append(as_dict(value, words...));
  return list;
}

}  // namespace

py::dict as_dict(const Stats& stats, const Words& words) {
  py::dict dict;
  dict["steps"] = stats.steps;
  dict["recorded"] = stats.recorded;
  dict["trials"] = stats.trials;
  dict["replayed"] = stats.replayed;
  dict["eager"] = stats.eager;
  dict["audits"] = stats.audits;
  dict["variants"] = list_of(stats.variants);
  dict["refusals"] = list_of(stats.refusals, words);
  dict["fell_back"] = stats.fell_back;
  dict["fallbacks"] = list_of(stats.fallbacks, words);
  dict["last_verdict"] = stats.last_verdict
                             ? py::object(py::none())
                             : py::object(py::str(words.named(stats.last_verdict.text())));
  dict["last_verdicts"] = list_of(stats.last_verdicts, words);
  dict["trace_problem"] = stats.trace_problem;
  dict["ledger_problem"] = stats.ledger_problem;
  dict["log_problem"] = stats.log_problem;
  return dict;
}

}  // namespace steptape::python
