#include "tools/diff/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "diff/align/alignment.h"
#include "diff/ledger/ledger_diff.h"
#include "diff/numerics/numeric_words.h"
#include "diff/numerics/partings.h"
#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/cli/rank_files.h"
#include "tools/cli/trace_choice.h"
#include "tools/diff/numerics.h"
#include "tools/dump/ledger_view.h"

namespace steptape::tools {
namespace {

using Groups = std::vector<std::size_t>;

constexpr int kRanksVersion = 1;
constexpr std::size_t kMostShared = 2;
constexpr std::size_t kMostOfWay = 8;

/// What one process left.
struct Run {
  std::optional<trace::Trace> trace;
  std::optional<trace::Ledger> ledger;
};

Run open_run(const std::filesystem::path& path) {
  Run run;
  const bool is_ledger = storage::is_ledger(path);
  if (!is_ledger) run.trace = open_trace(path, Parts::kAll);
  if (is_ledger || std::filesystem::exists(storage::ledger_beside(path))) {
    run.ledger = open_ledger(path).ledger;
  }
  return run;
}

/// What ledgers tell of one step.
struct LedgerWord {
  std::size_t calls = 0;                ///< that several ranks have
  std::size_t compared = 0;             ///< of them, with digests
  std::optional<diff::RankCall> first;  ///< in which parameters or module buffers part
};

LedgerWord word_of_ledgers(const std::vector<const trace::Ledger*>& ledgers,
                           const std::string& step) {
  LedgerWord word;
  for (diff::RankCall& call : diff::calls_of_ranks(ledgers, step)) {
    ++word.calls;
    const Groups& groups = call.of(diff::CallPart::kParameters);
    const auto unknown = std::ranges::count(groups, diff::RankCall::kNone);
    word.compared += unknown + 1 < std::ssize(groups) ? 1 : 0;
    if (!word.first && call.differs(diff::CallPart::kParameters)) word.first = std::move(call);
  }
  return word;
}

/// Recordings of one call, one of each rank that has one with digests of its ops.
using CallRecordings = std::vector<const trace::Recording*>;

/// Two ranks and where they part.
struct FoundParting {
  std::size_t a = 0, b = 0;  ///< ranks, as they stand in the files
  diff::Parting parting;
  diff::OpStream stream_a, stream_b;
};

/// The first call in which ranks part, of those of which ops were compared.
struct PartedCall {
  std::uint64_t call = 0;
  Groups groups;                       ///< as those of diff::RankCall
  std::vector<FoundParting> partings;  ///< of the largest group and each other one
};

struct StepRanks {
  std::string name;
  LedgerWord ledger;
  std::vector<std::uint64_t> calls;  ///< whose ops were compared
  bool has_buffers = false;          ///< of modules
  std::optional<PartedCall> parted;

  /// Whether what ledgers tell is about what is shared: their digests are of module buffers, too.
  bool trusts_ledger(const diff::Shared& shared) const { return shared.buffers || !has_buffers; }
  /// The call in which ranks part, or 0.
  std::uint64_t first_parted(const diff::Shared& shared) const {
    const std::uint64_t by_ledger = ledger.first && trusts_ledger(shared) ? ledger.first->call : 0;
    if (!parted) return by_ledger;
    return by_ledger == 0 ? parted->call : std::min(parted->call, by_ledger);
  }
};

class Ranks {
 public:
  explicit Ranks(const RankOptions& options)
      : options_(options), files_(rank_files(options.paths)) {
    shared_.buffers = options.with_buffers;
    for (const RankFile& file : files_) runs_.push_back(open_run(file.path));
    complain_of_missing();
    const Progress progress("comparing the ranks");
    for (const std::string& name : step_names()) steps_.push_back(compare_step(name));
    if (!options.step.empty() && steps_.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("no step of these ranks is called `{}`", options.step));
    }
  }

  int run() const {
    if (options_.json) {
      put(json_text(json()));
    } else {
      put(text());
    }
    if (first_parted() != nullptr) return kDiffers;
    return has_compared() ? kGood : kTrouble;
  }

 private:
  void complain_of_missing() const {
    for (const Run& run : runs_) {
      const std::string world = run.trace ? std::string(fact_of(*run.trace, "world")) : "";
      if (world.empty() || world == std::to_string(files_.size())) continue;
      return complain(fmt::format("these are the files of {} of {} ranks", files_.size(), world));
    }
  }

  std::vector<std::string> step_names() const {
    std::vector<std::string> names;
    const auto meet = [&](const std::string& name) {
      const bool is_wanted = options_.step.empty() || options_.step == name;
      if (is_wanted && std::ranges::find(names, name) == names.end()) names.push_back(name);
    };
    for (const Run& run : runs_) {
      if (run.trace) {
        for (const trace::Step& step : run.trace->steps) meet(step.name);
      }
      if (run.ledger) std::ranges::for_each(run.ledger->steps, meet);
    }
    return names;
  }

  StepRanks compare_step(const std::string& name) const {
    StepRanks step;
    step.name = name;
    std::vector<const trace::Ledger*> ledgers;
    const trace::Ledger none;
    for (const Run& run : runs_) ledgers.push_back(run.ledger ? &*run.ledger : &none);
    step.ledger = word_of_ledgers(ledgers, name);
    for (const auto& [call, recordings] : recordings_of(name, step.has_buffers)) {
      if (std::ranges::count(recordings, nullptr) + 1 >= std::ssize(recordings)) continue;
      step.calls.push_back(call);
      step.parted = compare_call(call, recordings);
      if (step.parted) break;
    }
    return step;
  }

  std::map<std::uint64_t, CallRecordings> recordings_of(const std::string& name,
                                                        bool& has_buffers) const {
    std::map<std::uint64_t, CallRecordings> calls;
    for (std::size_t rank = 0; rank < runs_.size(); ++rank) {
      const trace::Step* step = runs_[rank].trace ? runs_[rank].trace->find_step(name) : nullptr;
      if (step == nullptr) continue;
      for (const trace::Recording& recording : step->recordings) {
        has_buffers = has_buffers || std::ranges::any_of(recording.buffers, [](const auto& buffer) {
                        return buffer.role == trace::Role::kModuleBuffer;
                      });
        const bool has_digests = recording.op_digests.size() == recording.ops.size();
        if (recording.call == 0 || !has_digests) continue;
        CallRecordings& of_call = calls[recording.call];
        of_call.resize(runs_.size());
        if (of_call[rank] == nullptr) of_call[rank] = &recording;
      }
    }
    return calls;
  }

  /// None where the ranks that have a recording do not part.
  std::optional<PartedCall> compare_call(std::uint64_t call,
                                         const CallRecordings& recordings) const {
    PartedCall out{call, Groups(recordings.size(), diff::RankCall::kNone), {}};
    std::vector<std::size_t> first_of;  // by group
    for (std::size_t rank = 0; rank < recordings.size(); ++rank) {
      if (recordings[rank] == nullptr) continue;
      const auto alike = std::ranges::find_if(
          first_of, [&](std::size_t other) { return !part(other, rank, recordings); });
      out.groups[rank] = static_cast<std::size_t>(alike - first_of.begin());
      if (alike == first_of.end()) first_of.push_back(rank);
    }
    if (first_of.size() < 2) return std::nullopt;
    const auto size_of = [&](std::size_t rank) {
      return std::ranges::count(out.groups, out.groups[rank]);
    };
    const std::size_t most = *std::ranges::max_element(first_of, {}, size_of);
    for (const std::size_t rank : first_of) {
      if (rank != most) out.partings.push_back(*part(most, rank, recordings));
    }
    return out;
  }

  std::optional<FoundParting> part(std::size_t a, std::size_t b,
                                   const CallRecordings& recordings) const {
    diff::OpStream stream_a(*recordings[a]);
    diff::OpStream stream_b(*recordings[b]);
    const diff::NumericDifferences found =
        diff::numeric_differences(stream_a, stream_b, diff::align(stream_a, stream_b));
    auto parting = diff::find_parting(*recordings[a], found, shared_);
    if (!parting) return std::nullopt;
    return FoundParting{a, b, std::move(*parting), std::move(stream_a), std::move(stream_b)};
  }

  /// The step in which ranks part, or null.
  const StepRanks* first_parted() const {
    const auto found = std::ranges::find_if(
        steps_, [this](const StepRanks& step) { return step.first_parted(shared_) != 0; });
    return found == steps_.end() ? nullptr : &*found;
  }

  bool has_compared() const {
    return std::ranges::any_of(steps_, [this](const StepRanks& step) {
      return !step.calls.empty() || (step.ledger.compared > 0 && step.trusts_ledger(shared_));
    });
  }

  std::string groups_text(const Groups& groups) const { return words_of_groups(groups, files_); }

  std::string verdict() const {
    const StepRanks* step = first_parted();
    if (step == nullptr) {
      return has_compared()
                 ? fmt::format("{}: {} ranks", toned(Tone::kGood, "agree"), files_.size())
                 : "not compared: the ranks have no digests of one call";
    }
    const std::uint64_t call = step->first_parted(shared_);
    const bool is_by_ops = step->parted && step->parted->call == call;
    const Groups& groups =
        is_by_ops ? step->parted->groups : step->ledger.first->of(diff::CallPart::kParameters);
    std::string words = fmt::format("{}: {}: call {}: ranks {}", toned(Tone::kBad, "part"),
                                    shown(step->name), call, groups_text(groups));
    if (!is_by_ops) return words;
    const FoundParting& found = step->parted->partings.front();
    words += ": " + shown(diff::words_of_some(found.parting.paths, kMostShared));
    if (found.parting.is_at_entry) return words + " at entry";
    const std::string entry = found.parting.entry(found.stream_a, found.stream_b);
    if (entry.empty()) return words + ": " + op_text(found, found.parting.way.back());
    return words +
           shown(fmt::format(
               ": {}: from {}, without a collective",
               words_of_place(found.parting.way.front(), found.stream_a, found.stream_b), entry));
  }

  static std::string op_text(const FoundParting& found, const diff::NumericOp& op) {
    return shown(fmt::format("{}: {}", words_of_place(op, found.stream_a, found.stream_b),
                             words_of_cause(op, found.stream_a, found.stream_b)));
  }

  std::string text() const {
    std::string out = verdict() + "\n";
    for (const StepRanks& step : steps_) {
      out += fmt::format("\n{}\n", toned(Tone::kHeading, "step " + shown(step.name)));
      out += ledger_text(step) + calls_text(step);
    }
    return out;
  }

  std::string ledger_text(const StepRanks& step) const {
    const LedgerWord& ledger = step.ledger;
    if (ledger.calls == 0) return {};
    std::string words =
        fmt::format("  ledgers  {} on several ranks", count_of(ledger.calls, "call"));
    if (ledger.compared == 0) return words + ", without digests\n";
    if (ledger.compared < ledger.calls) words += fmt::format(", {} with digests", ledger.compared);
    if (!ledger.first) return words + ": parameters and module buffers agree\n";
    words += fmt::format(": parameters or module buffers part in call {}: {}\n", ledger.first->call,
                         groups_text(ledger.first->of(diff::CallPart::kParameters)));
    if (!step.trusts_ledger(shared_) && !step.parted) {
      words +=
          "           which does not count, as the modules have buffers: --buffers counts them\n";
    }
    return words;
  }

  std::string calls_text(const StepRanks& step) const {
    const std::uint64_t first = step.first_parted(shared_);
    std::string words;
    if (!step.calls.empty()) {
      words += fmt::format("  ops      of call{} {}\n", step.calls.size() == 1 ? "" : "s",
                           numbers_text(step.calls));
    }
    if (step.parted) words += partings_text(*step.parted);
    const bool is_told = step.parted && step.parted->call == first && !is_entered(*step.parted);
    if (first == 0 || is_told) return words;
    return words +
           fmt::format(
               "  to find the op: steptape record --at {} --digests -- PROGRAM, on each rank\n",
               first);
  }

  static bool is_entered(const PartedCall& call) {
    return call.partings.front().parting.is_at_entry;
  }

  static std::string numbers_text(const std::vector<std::uint64_t>& calls) {
    std::vector<std::string> names;
    for (const std::uint64_t call : calls) names.push_back(std::to_string(call));
    return diff::words_of_some(names, kMostOfWay);
  }

  /// Ranks that part from the others in the same way are reported together.
  std::string partings_text(const PartedCall& call) const {
    std::vector<std::pair<std::string, std::string>> told;  // what is said, of which ranks
    for (const FoundParting& found : call.partings) {
      const std::string words = parting_text(found);
      const std::string rank = std::to_string(files_[found.b].rank);
      const auto known =
          std::ranges::find(told, words, &std::pair<std::string, std::string>::first);
      if (known == told.end()) {
        told.emplace_back(words, rank);
      } else {
        known->second += ", " + rank;
      }
    }
    std::string out;
    for (const auto& [words, ranks] : told) {
      out += fmt::format("  call {}, rank {} beside {}: {}", call.call,
                         files_[call.partings.front().a].rank, ranks, words);
    }
    return out;
  }

  std::string parting_text(const FoundParting& found) const {
    const diff::Parting& parting = found.parting;
    std::string words =
        fmt::format("{} {}\n",
                    shown(diff::words_of_some(parting.paths,
                                              options_.all ? parting.paths.size() : kMostShared)),
                    parting.is_at_entry ? "differ when the call begins" : "differ, by");
    const auto& way = parting.way;
    for (std::size_t i = 0; i < way.size(); ++i) {
      const bool is_left_out = !options_.all && way.size() > kMostOfWay && i >= kMostOfWay / 2 &&
                               i + kMostOfWay / 2 < way.size();
      if (!is_left_out) {
        words += fmt::format("    {}\n", op_text(found, way[i]));
      } else if (i == kMostOfWay / 2) {
        words += fmt::format("    ({} more)\n", way.size() - kMostOfWay);
      }
    }
    if (parting.ends_at_collective)
      words += "    which is a collective that left the ranks other results\n";
    if (!parting.entry(found.stream_a, found.stream_b).empty()) {
      words += "    no collective is on the way\n";
    }
    return words;
  }

  Json groups_json(const Groups& groups) const {
    std::map<std::size_t, Json> members;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] != diff::RankCall::kNone) members[groups[i]].push_back(files_[i].rank);
    }
    Json out = Json::array();
    for (auto& [group, ranks] : members) out.push_back(std::move(ranks));
    return out;
  }

  Json json() const {
    const auto json_of_step = [this](const StepRanks& step) { return step_json(step); };
    Json agree;
    if (first_parted() != nullptr || has_compared()) agree = first_parted() == nullptr;
    return {{"version", kRanksVersion},
            {"agree", agree},
            {"ranks", ranks_json(files_)},
            {"steps", each(steps_, json_of_step)}};
  }

  Json step_json(const StepRanks& step) const {
    const LedgerWord& ledger = step.ledger;
    Json first;
    if (ledger.first) {
      first = {{"call", ledger.first->call},
               {"groups", groups_json(ledger.first->of(diff::CallPart::kParameters))}};
    }
    Json parted;
    if (step.parted) {
      const auto json_of = [this](const FoundParting& found) { return parting_json(found); };
      parted = {{"call", step.parted->call},
                {"groups", groups_json(step.parted->groups)},
                {"partings", each(step.parted->partings, json_of)}};
    }
    const std::uint64_t call = step.first_parted(shared_);
    return {{"name", step.name},
            {"call", call == 0 ? Json() : Json(call)},
            {"ledgers",
             {{"calls", ledger.calls},
              {"compared", ledger.compared},
              {"counts", step.trusts_ledger(shared_)},
              {"first", first}}},
            {"calls", step.calls},
            {"parted", parted}};
  }

  Json parting_json(const FoundParting& found) const {
    const auto op_json = [&found](const diff::NumericOp& op) {
      return numeric_op_json(op, found.stream_a, found.stream_b);
    };
    return {{"a", files_[found.a].rank},
            {"b", files_[found.b].rank},
            {"paths", found.parting.paths},
            {"at_entry", found.parting.is_at_entry},
            {"ends_at_collective", found.parting.ends_at_collective},
            {"way", each(found.parting.way, op_json)}};
  }

  const RankOptions& options_;
  const std::vector<RankFile> files_;
  diff::Shared shared_;
  std::vector<Run> runs_;  ///< as `files_`
  std::vector<StepRanks> steps_;
};

}  // namespace

int diff_ranks(const RankOptions& options) { return Ranks(options).run(); }

}  // namespace steptape::tools
