#include "tests/tools/recorded_runs.h"

#include "storage/ledger/ledger_reader.h"
#include "storage/ledger/ledger_writer.h"
#include "storage/trace/writer.h"
#include "tests/trace/made_up.h"

namespace steptape::tools {

void RecordedRunsTest::write(const std::filesystem::path& path, const std::vector<Call>& calls) {
  trace::Trace trace;
  trace.steps.push_back({"train", "", {}});
  for (const Call& call : calls) {
    trace::Recording recording =
        test::make_up({.seed = 1, .modules = 2, .ops_a_module = 2, .batch = 4});
    recording.call = call.number;
    recording.scopes = {"Adam.step > train.py:41"};
    recording.ops[1].scope = 0;
    test::run_fake(recording, call.run);
    if (!call.has_digests) recording.op_digests.clear();
    if (call.ns > 0) recording.op_ns.assign(recording.ops.size(), call.ns);
    trace.steps[0].recordings.push_back(std::move(recording));
  }
  storage::write(trace, path);
}

void RecordedRunsTest::write_ledger(const std::filesystem::path& path, std::uint64_t first_other) {
  const std::filesystem::path ledger = storage::ledger_beside(path);
  std::filesystem::remove(ledger);
  storage::LedgerWriter writer(ledger, {});
  for (std::uint64_t call = 1; call <= 20; ++call) {
    trace::LedgerLine line;
    line.step = writer.step("train");
    line.call = call;
    line.outcome = trace::CallOutcome::kReplayed;
    line.inputs = call;
    line.results = line.parameters = call < first_other ? call : call + 100;
    line.microseconds = 100;
    writer.append(line);
  }
}

}  // namespace steptape::tools
