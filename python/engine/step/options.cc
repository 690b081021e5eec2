#include "python/engine/step/options.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "steptape/error.h"

namespace steptape::python {
namespace {

template <typename Enum>
struct Choice {
  const char* name;
  Enum value;
};

template <typename Enum, std::size_t N>
Enum chosen(const py::dict& options, const char* option, const Choice<Enum> (&choices)[N]) {
  const auto found = py::cast<std::string>(options[option]);
  for (const auto& choice : choices) {
    if (found == choice.name) return choice.value;
  }
  throw Error(ErrorCode::kInternal, std::string(option) + " is '" + found + "'");
}

Record record_of(const py::dict& record) {
  Record made;
  made.first = py::cast<std::uint64_t>(record["first"]);
  made.every = py::cast<std::uint64_t>(record["every"]);
  for (const py::handle call : py::cast<py::list>(record["at"])) {
    made.at.push_back(py::cast<std::uint64_t>(call));
  }
  made.on_nonfinite = py::cast<bool>(record["on_nonfinite"]);
  made.on_signal = py::cast<int>(record["on_signal"]);
  made.state = py::cast<bool>(record["state"]);
  return made;
}

}  // namespace

Options options_of(const py::dict& options) {
  Options made;
  made.trace = py::cast<std::string>(options["trace"]);
  made.verify.first = py::cast<bool>(options["verify_first"]);
  made.verify.rate = py::cast<double>(options["verify_rate"]);
  made.on_divergence = chosen<OnDivergence>(options, "on_divergence",
                                            {{"raise", OnDivergence::kThrow},
                                             {"report", OnDivergence::kReport},
                                             {"restore", OnDivergence::kRestore}});
  made.on_refusal = chosen<OnRefusal>(options, "on_refusal",
                                      {{"eager", OnRefusal::kEager}, {"raise", OnRefusal::kThrow}});
  made.determinism = chosen<Determinism>(
      options, "determinism", {{"listed", Determinism::kListed}, {"strict", Determinism::kStrict}});
  made.host_reads = chosen<HostReads>(
      options, "host_reads", {{"refuse", HostReads::kRefuse}, {"observe", HostReads::kObserve}});
  made.max_variants = py::cast<std::uint32_t>(options["max_variants"]);
  made.static_gradients = py::cast<bool>(options["static_gradients"]);
  made.audit_seed = py::cast<std::uint64_t>(options["audit_seed"]);
  made.log = py::cast<std::string>(options["log"]);
  made.ledger = py::cast<bool>(options["ledger"]);
  made.digests = py::cast<bool>(options["digests"]);
  made.timings = py::cast<bool>(options["timings"]);
  made.resume = py::cast<bool>(options["resume"]);
  made.record = record_of(options["record"]);
  return made;
}

}  // namespace steptape::python
