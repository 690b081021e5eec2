#include "replayer/planner/plan_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "trace/text/text.h"

namespace steptape::replayer {
namespace {

std::string variant_line(const PlanStats& plan) {
  if (!plan.device.device.empty()) {
    return fmt::format("  variant {}: {} replays of {} ops on {}, planned in {:.0f} us\n",
                       plan.number, plan.replays, plan.ops, plan.device.device, plan.plan_us);
  }
  return fmt::format(
      "  variant {}: {} replays of {} ops in {} calls, {} by kernels, in {} passes, arena {} of {} "
      "bytes, planned in {:.0f} us\n",
      plan.number, plan.replays, plan.ops, plan.calls, plan.prepared, plan.stages, plan.arena_bytes,
      plan.temporary_bytes, plan.plan_us);
}

/// So many operators are told; stats() has all, with reasons.
constexpr std::size_t kMostOperators = 6;

/// "    by the dispatcher: aten::bernoulli_.float, 3× aten::convolution"
std::string kernel_lines(const PlanStats& plan) {
  std::string text;
  if (plan.lacks_blas) {
    text += "    no sgemm of LibTorch's was found: products are done by its own kernels\n";
  }
  if (plan.unprepared.empty()) return text;
  const std::size_t shown = std::min(plan.unprepared.size(), kMostOperators);
  std::string list;
  for (const CountedReason& each : std::span(plan.unprepared).first(shown)) {
    const std::string name = each.reason.substr(0, each.reason.find(": "));
    list += (list.empty() ? "" : ", ") + (each.calls > 1 ? fmt::format("{}× ", each.calls) : "") +
            trace::on_one_line(name);
  }
  const std::size_t more = plan.unprepared.size() - shown;
  if (more > 0) list += fmt::format(" and {} more", more);
  return text + "    by the dispatcher: " + list + "\n";
}

std::string count_of(std::uint64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "    1 graph of 57 nodes, 12 kernels with numbers that vary, captured in 2310 us; ..."
std::string graph_lines(const PlanStats& plan) {
  const DeviceStats& device = plan.device;
  if (device.device.empty()) return "";
  if (device.captures == 0) return "    no graph has been captured yet\n";
  std::string text = fmt::format(
      "    {} of {}, {} with numbers that vary, captured in {:.0f} us; {} ahead of them; launched "
      "in "
      "{:.0f} us\n    memory: {} bytes of the graphs' own, {} that inputs are copied into\n",
      count_of(device.graphs, "graph"), count_of(device.nodes, "node"),
      count_of(device.updated, "kernel"), device.capture_us, count_of(device.ahead, "call"),
      device.launch_us, device.pool_bytes, device.static_bytes);
  if (device.groups > 0) {
    text +=
        fmt::format("    {} that do the same to several tensors done by {} of `_foreach_` ops\n",
                    count_of(device.grouped, "op"), count_of(device.groups, "call"));
  }
  if (device.captures > 1) {
    text += fmt::format("    captured {} times, the last time since {}\n", device.captures,
                        trace::on_one_line(device.captured_for));
  }
  for (const std::string& call : device.between) {
    text += "    between graphs: " + trace::on_one_line(call) + "\n";
  }
  for (const TensorCopy& copy : device.copies) {
    text += fmt::format("    copied: {} ({} bytes), since {}. Remedy: {}\n",
                        trace::on_one_line(copy.path), copy.bytes, trace::on_one_line(copy.why),
                        copy.remedy);
  }
  return text;
}

std::string rebound_line(const PlanStats& plan) {
  if (plan.rebinds == 0) return "";
  return fmt::format("    took up moved memory of tracked tensors {}×\n", plan.rebinds);
}

std::string warm_start_line(const PlanStats& plan) {
  return plan.is_warm_start ? "    one probe agreed with the trace of an earlier run\n" : "";
}

std::string nondeterministic_lines(const PlanStats& plan) {
  std::string text;
  for (const NondeterministicOp& op : plan.nondeterministic) {
    std::string where;
    for (const std::string& part : {op.module, op.place}) {
      if (!part.empty()) where += ", " + trace::on_one_line(part);
    }
    text += fmt::format(
        "    leaves other bits each time: op {} {}{}; up to {:.1e} of its largest element by "
        "itself, {:.1e} "
        "in replays. All else is compared bit for bit, given what it left\n",
        op.op_index, trace::on_one_line(op.op), where, op.spread, op.largest_difference);
    if (plan.device.device.empty()) continue;
    text +=
        "      Remedy: torch.use_deterministic_algorithms(True) may bring it into a graph with the "
        "others\n";
  }
  return text;
}

}  // namespace

std::string plan_lines(std::span<const PlanStats> plans, std::span<const std::string> differences) {
  std::string text;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const PlanStats& plan = plans[i];
    text += variant_line(plan);
    if (i < differences.size() && !differences[i].empty())
      text += "    " + trace::on_one_line(differences[i]) + "\n";
    text += graph_lines(plan) + kernel_lines(plan) + warm_start_line(plan) + rebound_line(plan) +
            nondeterministic_lines(plan);
  }
  return text;
}

}  // namespace steptape::replayer
