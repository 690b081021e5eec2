#include <fstream>
#include <iostream>

#include "storage/trace/format.h"
#include "storage/trace/reader.h"
#include "tests/storage/golden_text.h"
#include "tests/storage/ledger/ledger_lines.h"
#include "tests/storage/sample.h"
#include "trace/text/text.h"

namespace steptape::storage {
namespace {

void put_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

void put_trace(const std::filesystem::path& path, const std::string& bytes) {
  put_file(path, bytes);
  Report report;
  const std::optional<trace::Trace> trace = recover(path, report);
  put_file(path.string() + ".txt", trace::print(trace.value(), trace::Contents::kBytes));
}

void write_traces(const std::filesystem::path& folder) {
  for (const Sample& sample : samples()) {
    if (sample.name == "tensors") continue;  // nothing that others do not have
    put_trace(folder / (sample.name + ".tape"), sample.bytes);
    if (sample.name != "stream") continue;
    put_trace(folder / "killed.tape.part", sample.bytes.substr(0, sample.bytes.size() * 2 / 3));
  }
}

void write_ledger(const std::filesystem::path& folder) {
  trace::Ledger ledger;
  const std::filesystem::path path = folder / "run.tape.ledger";
  put_file(path, sample_ledger(ledger));
  put_file(path.string() + ".txt", text_of_ledger(read_ledger(path)));
}

/// Files of a version are never written again.
template <typename Write>
void write_once(const std::filesystem::path& folder, Write&& write) {
  if (!std::filesystem::create_directories(folder)) {
    std::cerr << folder.string() << " is there; its files stay as they are\n";
    return;
  }
  write(folder);
}

}  // namespace
}  // namespace steptape::storage

/// write_golden: writes the files of a new version of a format, for golden_test.cc.
int main() {
  namespace storage = steptape::storage;
  storage::write_once(storage::golden_of_traces(storage::kMajor, storage::kMinor),
                      storage::write_traces);
  storage::write_once(storage::golden_of_ledgers(storage::kLedgerVersion), storage::write_ledger);
}
