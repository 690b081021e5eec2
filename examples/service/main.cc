// Serves a trace over HTTP: predictions from several threads, and lessons that they see once each
// is learned. It holds no model code: LibTorch, the player and a trace.
#include <httplib.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "messages.h"
#include "players.h"
#include "prometheus.h"

namespace service {
namespace {

struct Options {
  std::string trace;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::size_t threads = 4;
  bool any_environment = false;
  std::string snapshots;
  std::uint64_t every_steps = 100;
  double every_seconds = 30;
  std::size_t keep = 3;
  bool quiet = false;
};

constexpr const char* kJson = "application/json";

/// What the service does with each request; httplib calls it from its threads.
class Routes {
 public:
  explicit Routes(Players& players) : players_(players) {}

  void add_to(httplib::Server& server) {
    server.Post("/predict", answering([this](const Request& request) { return predict(request); }));
    server.Post("/learn", answering([this](const Request& request) { return learn(request); }));
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(metrics(), "text/plain; version=0.0.4");
    });
    server.Get("/explain", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(players_.look([](auto& player) { return player.explain(); }),
                           "text/plain; charset=utf-8");
    });
    server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const std::string what = response.status == 404   ? "nothing is at"
                               : response.status == 413 ? "the body is too large for"
                                                        : "no answer to";
      response.set_content(problem(what + " " + request.method + " " + request.path), kJson);
    });
  }

 private:
  /// A handler that takes the body apart and turns what is thrown into a status.
  template <typename Answer>
  static httplib::Server::Handler answering(Answer answer) {
    return [answer](const httplib::Request& request, httplib::Response& response) {
      try {
        response.set_content(answer(parse_request(request.body)), kJson);
      } catch (const BadRequest& error) {
        response.status = 400;
        response.set_content(problem(error.what()), kJson);
      } catch (const Refused& refused) {
        response.status = 422;
        response.set_content(refused.body, kJson);
      } catch (const std::exception& error) {
        response.status = 500;
        response.set_content(problem(error.what()), kJson);
      }
    };
  }

  /// A guard did not hold.
  struct Refused {
    std::string body;
  };

  static std::vector<at::Tensor> run(steptape::Player& player, const char* name,
                                     const std::vector<at::Tensor>& inputs) {
    steptape::PlayerStep step = player.step(name);
    try {
      return step.run(inputs);
    } catch (const steptape::Error& error) {
      if (error.code() != steptape::ErrorCode::kFailedPrecondition) throw;
      throw Refused{refusal(error.what(), step.last_verdict())};
    }
  }

  std::string predict(const Request& request) {
    return players_.predict([&](steptape::Player& player) {
      return prediction(run(player, "predict", {request.pixels}).front());
    });
  }

  std::string learn(const Request& request) {
    if (!request.labels.defined()) throw BadRequest("\"labels\" is missing");
    return players_.learn([&](steptape::Player& player) {
      constexpr const char* kRate = "optimizer.param_groups[0].lr";
      const double rate = player.scalar(kRate);
      if (request.learning_rate) player.set(kRate, *request.learning_rate);
      try {
        const at::Tensor loss = run(player, "learn", {request.pixels, request.labels}).front();
        learned_ = player.step("learn").runs();
        return lesson_learned(loss, learned_);
      } catch (...) {
        player.set(kRate, rate);
        throw;
      }
    });
  }

  /// Waits for no lesson.
  std::string metrics() const { return prometheus_text(players_.metrics(), memory_, learned_); }

  Players& players_;
  steptape::PlayerMemory memory_ =
      players_.look([](steptape::Player& player) { return player.memory(); });
  std::atomic<std::uint64_t> learned_ =
      players_.look([](steptape::Player& player) { return player.step("learn").runs(); });
};

/// Signals that end the service are taken by one thread: blocked in this one and those it makes.
sigset_t block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

steptape::LoadOptions load_options(const Options& options) {
  steptape::LoadOptions load;
  load.threads = 1;  // requests share the cores
  if (options.any_environment) load.environment = steptape::Environment::kAny;
  if (!options.quiet) {
    load.on_event = [](const steptape::PlayerEvent& event) {
      if (event.kind == steptape::PlayerEvent::Kind::kRan) return;  // metrics have them
      if (event.kind == steptape::PlayerEvent::Kind::kPublished) return;
      std::fprintf(stderr, "%s\n", event.json().c_str());
    };
  }
  return load;
}

/// The trace, or the newest snapshot of a training that went on from it.
std::string start_of(const Options& options) {
  if (options.snapshots.empty()) return options.trace;
  const std::string newest = steptape::newest_snapshot(options.snapshots);
  if (newest.empty()) return options.trace;
  const steptape::LoadOptions load = load_options(options);
  if (steptape::load(newest, load).origin() != steptape::load(options.trace, load).origin()) {
    throw std::runtime_error(newest + " does not go on from " + options.trace +
                             ": choose another folder for its snapshots");
  }
  return newest;
}

int serve(const Options& options) {
  sigset_t ends = block_ends();
  const std::string start = start_of(options);
  Players players(start, load_options(options), options.threads);
  const std::uint64_t learned = players.look([&](steptape::Player& player) {
    if (!options.snapshots.empty()) {
      player.keep_snapshots(
          {options.snapshots, options.every_steps, options.every_seconds, options.keep});
    }
    return player.step("learn").runs();
  });
  httplib::Server server;
  // a connection keeps a thread of its own
  server.new_task_queue = [&] { return new httplib::ThreadPool(4 * options.threads); };
  server.set_tcp_nodelay(true);
  // by default another process could listen on the same port
  server.set_socket_options([](int socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.set_keep_alive_max_count(1'000'000);
  server.set_payload_max_length(std::size_t{1} << 20);
  Routes routes(players);
  routes.add_to(server);
  const int port = options.port == 0
                       ? server.bind_to_any_port(options.host)
                       : (server.bind_to_port(options.host, options.port) ? options.port : -1);
  if (port < 0) {
    std::fprintf(stderr, "service: cannot listen on %s:%d\n", options.host.c_str(), options.port);
    return 2;
  }
  std::printf("service: %s on http://%s:%d\n", start.c_str(), options.host.c_str(), port);
  std::fflush(stdout);
  std::atomic<bool> has_ended = false;
  std::thread ending([&] {
    int signal = 0;
    sigwait(&ends, &signal);
    // one that comes before it listens is not heard
    while (!has_ended) {
      server.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const bool listened = server.listen_after_bind();  // until all requests are answered
  has_ended = true;
  // where it was not a signal that ended it; blocked in all threads, it ends a wait and no thread
  // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
  pthread_kill(ending.native_handle(), SIGTERM);
  ending.join();
  const std::string kept = players.look([&](steptape::Player& player) -> std::string {
    if (options.snapshots.empty() || player.step("learn").runs() == learned) return "";
    return player.snapshot();
  });
  if (!kept.empty()) std::printf("service: ended, all it learned is in %s\n", kept.c_str());
  return listened ? 0 : 2;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Serves a trace that service_record wrote: POST /predict, POST /learn, GET /metrics, "
      "GET /explain.");
  app.add_option("trace", options.trace, "the trace")->required()->type_name("FILE");
  app.add_option("--host", options.host, "where to listen")->capture_default_str();
  app.add_option("--port", options.port, "0: any that is free; it is printed")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--threads", options.threads, "requests that are predicted at the same time")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--snapshots", options.snapshots,
                 "folder to keep what was learned in; where it holds a snapshot, that is served")
      ->type_name("FOLDER");
  app.add_option("--every-steps", options.every_steps, "steps between snapshots; 0: not by steps")
      ->capture_default_str();
  app.add_option("--every-seconds", options.every_seconds, "the same in seconds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--keep", options.keep, "snapshots that are left")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--any-environment", options.any_environment,
               "serve on a machine whose results may differ in their last bits");
  app.add_flag("--quiet", options.quiet, "no log on stderr");
  CLI11_PARSE(app, argc, argv);
  return serve(options);
}

}  // namespace
}  // namespace service

int main(int argc, char** argv) try {
  return service::run(argc, argv);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "service: %s\n", problem.what());
  return 2;
}
