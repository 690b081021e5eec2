#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "diff/op_stream.h"
#include "steptape/error.h"
#include "storage/ledger/ledger_reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_choice.h"
#include "tools/diff/comparison.h"
#include "tools/diff/folder_pairs.h"
#include "tools/diff/numerics.h"
#include "tools/dump/ledger_view.h"
#include "trace/record_request.h"

namespace steptape::tools {
namespace {

/// Where two runs part, as far as their ledgers and recordings tell.
struct Bisection {
  enum class Status : std::uint8_t {
    kEqual,    ///< nothing that was compared differs
    kNamed,    ///< in call `call`, or between calls just before it
    kBracket,  ///< in a call after `last_equal`, at the latest in `call`
    kLonely,   ///< calls that both made are equal, and one side made more
  };

  Status status = Status::kEqual;
  std::string step;
  std::uint64_t call = 0;
  /// How the call differs by the ledgers; none where recordings told it.
  std::optional<diff::CallDifference> ledger;
  /// The recordings of the call, where both sides have one and their ops were compared.
  const diff::RecordingDiff* recording = nullptr;
  /// The last call up to `call` that both recorded; 0: none.
  std::uint64_t nearest_recorded = 0;
  /// Of a bracket: the last call whose recordings are equal; 0: none.
  std::uint64_t last_equal = 0;
  /// Which call to record next, with digests; 0: none.
  std::uint64_t record_next = 0;
};

using Status = Bisection::Status;

const diff::StepDiff* find_step(const diff::Diff& diff, const std::string& name) {
  const auto found = std::ranges::find(diff.steps, name, &diff::StepDiff::name);
  return found == diff.steps.end() ? nullptr : &*found;
}

/// What the recordings of its step say about the call.
void add_recordings(const diff::StepDiff* step, Bisection& out) {
  if (step == nullptr) return;
  for (const diff::RecordingDiff& recording : step->recordings) {
    if (recording.call == 0 || recording.call > out.call) continue;
    out.nearest_recorded = std::max(out.nearest_recorded, recording.call);
    if (recording.call == out.call && recording.numerics.is_compared()) out.recording = &recording;
  }
}

Bisection bisect_ledgers(const Comparison& found) {
  const diff::LedgerDiff& ledger = *found.diff.ledger;
  Bisection out;
  if (ledger.first == diff::LedgerDiff::kNoStep) {
    if (ledger.differing() > 0) out.status = Status::kLonely;
    return out;
  }
  const diff::StepLedgerDiff& step = ledger.steps[ledger.first];
  out.status = Status::kNamed;
  out.step = step.name;
  out.call = step.first->call;
  out.ledger = step.first;
  add_recordings(find_step(found.diff, step.name), out);
  if (out.recording == nullptr) out.record_next = out.call;
  return out;
}

/// A recording that was entered with other bits came after the call where the runs parted.
Bisection bisect_recordings(const Comparison& found) {
  Bisection out;
  const auto [step, first] = found.diff.first_numeric();
  if (first == nullptr) return out;
  out.status = Status::kNamed;
  out.step = step->name;
  out.call = first->call;
  add_recordings(step, out);
  out.recording = first;
  for (const diff::RecordingDiff& recording : step->recordings) {
    const bool is_equal = recording.numerics.is_compared() && recording.numerics.count() == 0;
    if (is_equal && recording.call < out.call) {
      out.last_equal = std::max(out.last_equal, recording.call);
    }
  }
  const bool came_from_before = std::ranges::any_of(
      first->numerics.entered, [](const diff::EnteredBuffer& buffer) { return !buffer.is_noisy; });
  if (came_from_before && out.last_equal + 1 < out.call) {
    out.status = Status::kBracket;
    out.record_next = out.last_equal + (out.call - out.last_equal) / 2;
  }
  return out;
}

/// Refers to `found`, which must outlive it. Throws Error (failed_precondition) where there is
/// nothing to compare: neither ledgers of both nor calls that both recorded with digests.
Bisection bisect(const Comparison& found) {
  if (!found.diff.ledger && !found.diff.compares(diff::Section::kNumerics)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "there is nothing to find the call by: neither ledgers beside both traces nor "
                "calls that both recorded with digests. Run both with a ledger, or record the same "
                "calls in both with digests (Options::record and Options::digests; in Python "
                "record= and digests=True)");
  }
  const Bisection by_ledgers = found.diff.ledger ? bisect_ledgers(found) : Bisection();
  if (by_ledgers.status == Status::kNamed) return by_ledgers;
  const Bisection by_recordings = bisect_recordings(found);
  return by_recordings.status == Status::kEqual ? by_ledgers : by_recordings;
}

/// Of the JSON; it grows when a key changes its meaning or goes.
constexpr int kBisectVersion = 1;

struct Options : ComparisonOptions {
  bool json = false;
};

/// How the run of `trace` was started. Empty where it is not known: one process of several does not
/// know what started them all.
std::string_view program_of(const trace::Trace& trace) {
  return fact_of(trace, "rank").empty() ? fact_of(trace, "command") : std::string_view();
}

/// The command line that makes the run of `trace` once more and records the call in it; what
/// starts the program is left to the reader where it is not known.
std::string command_of(const trace::Trace& trace, std::string_view program, std::uint64_t call) {
  const std::string_view folder = fact_of(trace, "folder");
  std::error_code unknown;
  const bool is_elsewhere = !program.empty() && !folder.empty() &&
                            folder != std::filesystem::current_path(unknown).string();
  return fmt::format("{}steptape record --at {} --digests -- {}",
                     is_elsewhere ? fmt::format("cd {} && ", trace::shell_word(folder)) : "", call,
                     program.empty() ? "COMMAND" : program);
}

/// The same on a line that can be pasted: not of a program whose words are of several lines.
std::string shown_command_of(const trace::Trace& trace, std::uint64_t call) {
  const std::string_view program = program_of(trace);
  return shown(command_of(trace, shown(std::string(program)) == program ? program : "", call));
}

std::string cpp_of(std::uint64_t call) {
  return fmt::format("steptape::Options{{.record = {{.at = {{{}}}}}, .digests = true}}", call);
}

std::string python_of(std::uint64_t call) {
  return fmt::format("steptape.wrap(..., record={{\"at\": [{}]}}, digests=True)", call);
}

/// The trace beside which a ledger lies; a trace itself.
std::string trace_of(const std::filesystem::path& path) {
  const bool is_beside = storage::is_ledger(path) && path.extension() == ".ledger";
  return (is_beside ? std::filesystem::path(path).replace_extension() : path).string();
}

/// Two traces, where they part, and in which words that is told.
class Told {
 public:
  Told(std::string a, std::string b, const Options& options,
       const std::vector<std::filesystem::path>& controls)
      : a_(std::move(a)),
        b_(std::move(b)),
        found_(compare(a_, b_, options.step, controls, Ledgers::kBeside)),
        bisection_(bisect(found_)) {}

  int exit_code() const {
    if (bisection_.status != Status::kEqual) return kDiffers;
    return found_.has_torn_ledger ? kTrouble : kGood;
  }

  std::string text() const {
    std::string text = verdict() + "\n";
    if (bisection_.call == 0) return text;
    if (bisection_.ledger) text += fmt::format("  {}\n", ledger_words());
    if (bisection_.recording != nullptr) text += numerics_text();
    if (bisection_.recording == nullptr || bisection_.status == Status::kBracket) {
      text += nearest_text();
    }
    if (bisection_.record_next != 0) text += commands_text();
    return text;
  }

  Json json() const {
    const bool differs = exit_code() == kDiffers;
    const std::uint64_t next = bisection_.record_next;
    Json json = {{"a", a_},
                 {"b", b_},
                 {"differ", differs},
                 {"verdict", words()},
                 {"step", bisection_.call == 0 ? Json() : Json(bisection_.step)},
                 {"call", or_null(bisection_.call)},
                 {"is_exact", bisection_.status == Status::kNamed},
                 {"last_equal_call", or_null(bisection_.last_equal)},
                 {"nearest_recorded_call", or_null(bisection_.nearest_recorded)},
                 {"has_saved_state", has_saved_state()},
                 {"ledger", bisection_.ledger ? difference_json(*bisection_.ledger) : Json()},
                 {"numerics", nullptr},
                 {"record", nullptr}};
    if (bisection_.recording != nullptr) {
      const diff::OpStream stream_a(recording_a());
      const diff::OpStream stream_b(recording_b());
      json["numerics"] = numerics_json(bisection_.recording->numerics, stream_a, stream_b);
    }
    if (next != 0) {
      json["record"] = {{"call", next},
                        {"command_a", command_of(found_.a, program_of(found_.a), next)},
                        {"command_b", command_of(found_.b, program_of(found_.b), next)},
                        {"cpp", cpp_of(next)},
                        {"python", python_of(next)},
                        {"then", then()}};
    }
    return json;
  }

 private:
  static Json or_null(std::uint64_t call) { return call == 0 ? Json() : Json(call); }

  bool has_saved_state() const { return !found_.a.state.empty() && !found_.b.state.empty(); }
  const trace::Recording& recording_a() const {
    return found_.a.find_step(bisection_.step)->recordings[bisection_.recording->pair.a];
  }
  const trace::Recording& recording_b() const {
    return found_.b.find_step(bisection_.step)->recordings[bisection_.recording->pair.b];
  }

  std::string verdict() const {
    return bisection_.status == Status::kEqual ? toned(Tone::kGood, "equal")
                                               : toned(Tone::kBad, "differ") + ": " + words();
  }

  /// "train: call 57: results, parameters"
  std::string words() const {
    switch (bisection_.status) {
      case Status::kEqual:
        return "equal";
      case Status::kLonely:
        return shown(found_.diff.ledger->verdict());
      case Status::kBracket:
        return shown(fmt::format("{}: after call {}, at the latest in call {}", bisection_.step,
                                 bisection_.last_equal, bisection_.call));
      case Status::kNamed:
        break;
    }
    if (bisection_.ledger) return shown(found_.diff.ledger->verdict());
    return shown(words_of_numerics(found_.diff, found_.a, found_.b));
  }

  std::string ledger_words() const {
    const diff::CallDifference& call = *bisection_.ledger;
    const std::string equal = call.words_of(diff::PartStatus::kEqual);
    return fmt::format("{}{}", equal.empty() ? "" : equal + " equal: ", call.origin());
  }

  std::string numerics_text() const {
    const diff::NumericDifferences& numerics = bisection_.recording->numerics;
    if (numerics.count() == 0) {
      return fmt::format("  its {} left the same on both sides: what differs came from elsewhere\n",
                         count_of(numerics.compared, "op"));
    }
    Lines out("  ");
    const diff::OpStream stream_a(recording_a());
    const diff::OpStream stream_b(recording_b());
    put_numerics(out, numerics, stream_a, stream_b, Detail::kSome);
    return out.take();
  }

  std::string nearest_text() const {
    std::string text = bisection_.nearest_recorded == 0
                           ? std::string("  no call up to it was recorded in both\n")
                           : fmt::format("  nearest call up to it that both recorded: {}\n",
                                         bisection_.nearest_recorded);
    if (has_saved_state()) text += "  both traces hold the state of when they were saved\n";
    return text;
  }

  std::string then() const {
    return fmt::format("steptape diff {} {} --step {} --fail-on numerics",
                       trace::shell_word(trace_of(a_)), trace::shell_word(trace_of(b_)),
                       trace::shell_word(bisection_.step));
  }

  std::string commands_text() const {
    const std::uint64_t call = bisection_.record_next;
    return fmt::format(
        "record call {} in both, with digests:\n"
        "  a       {}\n"
        "  b       {}\n"
        "or in the program:\n"
        "  C++     {}\n"
        "  Python  {}\n"
        "then look again:\n"
        "  {}\n",
        call, shown_command_of(found_.a, call), shown_command_of(found_.b, call), cpp_of(call),
        python_of(call), shown(then()));
  }

  std::string a_, b_;
  Comparison found_;
  Bisection bisection_;
};

int bisect_files(const Options& options) {
  const Told told(options.a, options.b, options,
                  {options.controls.begin(), options.controls.end()});
  if (options.json) {
    Json json = {{"version", kBisectVersion}};
    json.update(told.json());
    put(json_text(json));
  } else {
    put(told.text());
  }
  return told.exit_code();
}

int bisect_folders(const Options& options) {
  const FolderPairs pairs = pair_folders(options.a, options.b);
  Json traces = Json::array();
  const int exit_code = pairs.visit([&](const NamePair& names) {
    const Told told((std::filesystem::path(options.a) / names.a).string(),
                    (std::filesystem::path(options.b) / names.b).string(), options,
                    files_named(names.a, options.controls));
    if (options.json) {
      traces.push_back(told.json());
      traces.back()["name"] = names.a;
      traces.back()["name_in_b"] = names.b;
    } else {
      put(fmt::format("{}: {}", toned(Tone::kHeading, shown(names.words())), told.text()));
    }
    return told.exit_code();
  });
  if (options.json) {
    put(json_text(pairs.json(kBisectVersion, traces)));
  } else {
    put(pairs.lonely_text());
  }
  return exit_code;
}

int run(const Options& options) {
  return are_folders(options.a, options.b, options.controls) ? bisect_folders(options)
                                                             : bisect_files(options);
}

}  // namespace

void add_bisect(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("bisect", "Find the call and the op in which two runs part");
  auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Ledgers beside the traces tell the call; recordings of that call, with digests of what\n"
      "ops left, tell the op. Where it was not recorded, says how to record it.\n"
      "Examples:\n"
      "  steptape bisect monday.tape tuesday.tape\n"
      "  steptape bisect a.tape b.tape --control a_again.tape\n"
      "  steptape bisect runA/ runB/ --json | jq '.traces[].call'\n"
      "Exit status: 0 equal, 1 they differ, 2 trouble: a file that is missing or damaged, or\n"
      "nothing to find the call by.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
