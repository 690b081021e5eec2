#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "trace/record_request.h"

namespace steptape::tools {
namespace {

using trace::RecordRequest;

struct RecordOptions {
  RecordRequest request;
  std::string cuda_graphs;  ///< a folder
  bool twice = false;
  std::vector<std::string> command;
};

/// Whether any call is to be recorded, or more of those that are.
bool asks(const RecordRequest& request) {
  return !request.text().empty() && !request.text().starts_with(':');
}

/// Becomes the program, or throws.
[[noreturn]] void become_asked(const std::vector<std::string>& command,
                               const RecordRequest& request) {
  if (asks(request)) ::setenv(RecordRequest::kVariable, request.text().c_str(), /*overwrite=*/1);
  become(command);
}

/// The program that runs, and the signal that this process got meanwhile; for its handler.
volatile sig_atomic_t running = 0;
volatile sig_atomic_t caught = 0;

/// The terminal sends its signals to the program, too, and whoever ends this process means it.
void on_signal(int signal) {
  caught = signal;
  if (signal == SIGTERM) ::kill(static_cast<pid_t>(running), signal);
}

/// The signals by which users end programs, while it lives: held back until the program runs, then
/// caught.
class Ends {
 public:
  Ends() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigset_t held;
    ::sigemptyset(&held);
    for (const int signal : kSignals) ::sigaddset(&held, signal);
    ::sigprocmask(SIG_BLOCK, &held, &mask_);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &before_[i]);
    }
  }
  ~Ends() { let_go(); }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  void catch_from_now() const { ::sigprocmask(SIG_SETMASK, &mask_, nullptr); }
  /// As they were before.
  void let_go() const {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &before_[i], nullptr);
    }
    ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGQUIT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_ = {};
  sigset_t mask_ = {};
};

/// The exit status of the program, as a shell gives it: 128 and the signal for one that a signal
/// ended, or that ended in good order when this process got one. Throws Error (io) where no process
/// can be made.
int run(const std::vector<std::string>& command, const RecordRequest& request) {
  constexpr int kOfSignals = 128;
  std::fflush(nullptr);
  const Ends ends;
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorCode::kIo, "no process can be made to run the program in");
  if (child == 0) {
    ends.let_go();
    try {
      become_asked(command, request);
    } catch (const Error& error) {
      complain(error);
      ::_exit(kTrouble);
    }
  }
  running = child;
  ends.catch_from_now();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return kOfSignals + WTERMSIG(status);
  return WEXITSTATUS(status) == 0 && caught != 0 ? kOfSignals + caught : WEXITSTATUS(status);
}

/// Throws Error (invalid_argument) where no trace can be written there.
void check_place(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code unknown;
  const bool is_folder = path.ends_with('/') || std::filesystem::is_directory(path, unknown);
  const bool has_folder = parent.empty() || std::filesystem::is_directory(parent, unknown);
  if (!is_folder && has_folder) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("record: --output {}: {}", path,
                          is_folder ? "it is a folder; name a file in it"
                                    : "there is no folder " + parent.string()));
}

/// Has the program write the CUDA graphs that it captures. Throws Error (io) where the folder
/// cannot be made.
void ask_for_graphs(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure || !std::filesystem::is_directory(folder)) {
    throw Error(ErrorCode::kIo,
                fmt::format("record: --cuda-graphs {}: no such folder can be made", folder));
  }
  const std::string path = std::filesystem::absolute(folder).string();
  ::setenv("STEPTAPE_CUDA_GRAPHS", path.c_str(), /*overwrite=*/1);
}

int record(const RecordOptions& options) {
  RecordRequest request = options.request;
  check_place(request.trace);
  request.digests |= options.twice;
  if (!asks(request) && options.cuda_graphs.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "record: nothing is asked for; --at, --first, --every, --on-nonfinite and "
                "--on-signal say which calls, --digests, --timings and --state what of them; "
                "--cuda-graphs asks for the graphs of a GPU");
  }
  if (!options.cuda_graphs.empty()) ask_for_graphs(options.cuda_graphs);
  if (options.twice) {
    const int exit_code = run(options.command, request);
    if (exit_code != 0) return exit_code;
    request.is_again = true;
  }
  become_asked(options.command, request);
}

}  // namespace

void become(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {}", words[0], std::generic_category().message(errno)));
}

void add_record(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "record", "Run a program, and record more calls of its steps than it asks for");
  auto options = std::make_shared<RecordOptions>();
  Record& record_of = options->request.record;
  command->add_option("--first", record_of.first, "Record the first N calls of each step")
      ->check(CLI::PositiveNumber);
  command->add_option("--every", record_of.every, "Record each N-th call")
      ->check(CLI::PositiveNumber);
  command->add_option("--at", record_of.at, "Record call N; more than once, or N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber);
  command->add_flag("--on-nonfinite", record_of.on_nonfinite,
                    "Record the call after the first that returns an infinity or a NaN");
  command
      ->add_option("--on-signal", record_of.on_signal,
                   "Record the call after signal N, such as 10 (SIGUSR1)")
      ->check(CLI::Range(1, RecordRequest::kMostSignals));
  command->add_flag(
      "--digests", options->request.digests,
      "Note what each op left, by which `steptape diff` finds the first that differs");
  command->add_flag("--timings", options->request.timings, "Note how long each op took");
  command->add_flag("--state", options->request.record.state,
                    "Keep all that recorded calls found: `steptape verify` does them again");
  command->add_option("--cuda-graphs", options->cuda_graphs,
                      "Write each CUDA graph that a plan captures into this folder, for Graphviz");
  command->add_flag("--twice", options->twice,
                    "Run the program twice, with --digests: names of the second run's traces gain "
                    "\".again\", for `steptape diff --control`");
  command->add_option("-o,--output", options->request.trace,
                      "The trace of a session that keeps none of its own");
  CLI::Option* program =
      command->add_option("COMMAND", options->command, "The program, and what it is given")
          ->required();
  command->footer(
      "The program says where its traces are kept (Options::trace; in Python trace=), or -o does.\n"
      "What it asks to be recorded is recorded as well.\n"
      "Examples:\n"
      "  steptape record --at 57 --digests -- python train.py --seed 3\n"
      "  steptape record --twice --first 3 -- python train.py\n"
      "  steptape diff other.tape run.tape --control run.again.tape\n"
      "  steptape record --cuda-graphs graphs -- python train.py; dot -Tsvg -O graphs/*.dot\n"
      "Exit status: that of the program; 2 where it cannot be run.");
  command->callback([command, program, options, &exit_code] {
    if (command->parse_order().back() != program) {
      throw Error(ErrorCode::kInvalidArgument,
                  "record: an option stands after the program: put -- before the program, and "
                  "options of `record` before that");
    }
    exit_code = record(*options);
  });
}

}  // namespace steptape::tools
