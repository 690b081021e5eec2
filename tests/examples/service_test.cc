// Drives the example service as an operator's clients would, over loopback: predictions from
// several threads beside lessons with a schedule of the teacher's own, a kill in the middle, an
// end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "dataset.h"
#include "examples/service/lesson.h"
#include "outcome.h"
#include "steptape/player.h"

namespace service {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A process of the service, in an empty folder that it was copied to, with LibTorch on its path
/// and nothing else.
class Process {
 public:
  Process(const std::filesystem::path& folder, int port)
      : log_(folder / ("log" + std::to_string(++started))) {
    const std::string program = folder / "service";
    const std::string port_text = std::to_string(port);
    const std::string libraries = std::string("LD_LIBRARY_PATH=") + STEPTAPE_TORCH_LIB;
    std::filesystem::remove(log_);
    child_ = fork();
    if (child_ != 0) return;
    if (chdir(folder.c_str()) != 0 || std::freopen(log_.c_str(), "w", stdout) == nullptr) _exit(3);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    const char* const environment[] = {libraries.c_str(), nullptr};
    execle(program.c_str(), "service", "service.tape", "--port", port_text.c_str(), "--snapshots",
           "snapshots", "--every-steps", "50", "--every-seconds", "0", "--threads", "4",
           static_cast<char*>(nullptr), environment);
    _exit(4);
  }
  ~Process() {
    if (child_ > 0) end(SIGKILL);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The port, once it listens; 0 when it ended or took longer than a minute.
  int port() {
    for (int i = 0; i < 6000; ++i) {
      std::smatch found;
      const std::string text = log();
      if (std::regex_search(text, found, std::regex("http://127.0.0.1:([0-9]+)")))
        return std::stoi(found[1]);
      int status = 0;
      if (waitpid(child_, &status, WNOHANG) == child_) {
        child_ = -1;
        return 0;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  }

  /// Its status, as waitpid gives it.
  int end(int signal) {
    int status = 0;
    kill(child_, signal);
    waitpid(child_, &status, 0);
    child_ = -1;
    return status;
  }

  std::string log() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  static inline int started = 0;
  std::filesystem::path log_;
  pid_t child_ = -1;
};

httplib::Client client_of(int port) {
  httplib::Client client("127.0.0.1", port);
  client.set_keep_alive(true);
  client.set_tcp_nodelay(true);
  client.set_connection_timeout(5);
  client.set_read_timeout(30);
  return client;
}

json pixels_of(const at::Tensor& pixels) {
  json images = json::array();
  for (std::int64_t i = 0; i < pixels.size(0); ++i) {
    const auto* row = pixels.const_data_ptr<float>() + i * pixels.size(1);
    images.push_back(std::vector<float>(row, row + pixels.size(1)));
  }
  return images;
}

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("steptape_service_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(SERVICE, folder_ / "service");
    std::filesystem::copy_file(SERVICE_TRACE, folder_ / "service.tape");
  }
  ~ServiceTest() override { std::filesystem::remove_all(folder_); }

  static json lesson(std::int64_t step) {
    static const digits::Split data = digits::split(digits::read(DIGITS_CSV));
    static digits::Batches batches(data.train, kBatchSize, kSeed);
    const digits::Images batch = batches.at(step);
    const auto* labels = batch.labels.const_data_ptr<std::int64_t>();
    return {{"pixels", pixels_of(batch.pixels)},
            {"labels", std::vector<std::int64_t>(labels, labels + batch.labels.numel())},
            {"learning_rate", learning_rate(step)}};
  }
  static std::string images(std::int64_t count) {
    static const digits::Split data = digits::split(digits::read(DIGITS_CSV));
    return json{{"pixels", pixels_of(data.test.pixels.narrow(0, 0, count).contiguous())}}.dump();
  }
  static std::uint64_t learned(httplib::Client& client) {
    const auto answer = client.Get("/metrics");
    std::smatch found;
    if (!answer ||
        !std::regex_search(answer->body, found, std::regex("\nsteptape_learned_steps ([0-9]+)\n")))
      return 0;
    return std::stoull(found[1]);
  }

  std::filesystem::path folder_;
};

TEST_F(ServiceTest, ABadRequestGetsWhatIsWrongWithIt) {
  Process service(folder_, 0);
  const int port = service.port();
  ASSERT_NE(port, 0) << service.log();
  httplib::Client client = client_of(port);
  const auto post = [&](const char* path, const std::string& body, int status,
                        const std::string& says) {
    const auto answer = client.Post(path, body, "application/json");
    ASSERT_TRUE(answer) << path << " " << body.substr(0, 80);
    EXPECT_EQ(answer->status, status) << body.substr(0, 80) << "\n" << answer->body;
    const json message = json::parse(answer->body, nullptr, false);
    ASSERT_TRUE(message.contains("error")) << answer->body;
    EXPECT_THAT(message["error"].get<std::string>(), HasSubstr(says));
  };
  post("/predict", "", 400, "no JSON object");
  post("/predict", "[1]", 400, "no JSON object");
  post("/predict", "{}", 400, "\"pixels\" is missing");
  post("/predict", R"({"pixels": [[1, 2]]})", 400, "64 numbers");
  post("/predict", R"({"pixels": [[)" + std::string(100'000, '['), 400, "no JSON object");
  post("/learn", images(16), 400, "\"labels\" is missing");
  post("/nowhere", "{}", 404, "nothing is at POST /nowhere");
  post("/predict", std::string(std::size_t{2} << 20, ' '), 413, "too large");
  json fast = lesson(kRecorded);
  fast["learning_rate"] = -1;
  post("/learn", fast.dump(), 400, "learning_rate");

  // a shape that was not recorded: the verdict lists those that were
  const auto answer = client.Post("/predict", images(5), "application/json");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 422);
  const json verdict = json::parse(answer->body)["verdict"];
  EXPECT_EQ(verdict["path"], "inputs");
  EXPECT_EQ(verdict["expected"], "float32[1, 64] or float32[16, 64]");
  EXPECT_EQ(verdict["found"], "float32[5, 64]");
  EXPECT_EQ(verdict["guard"], "shape");
  json wrong = lesson(kRecorded);
  const json no_digits = {11, -100, 4.5, 18446744073709551516ULL};
  for (const json& label : no_digits) {
    wrong["labels"][3] = label;
    post("/learn", wrong.dump(), 400, "no digit");
  }
  EXPECT_EQ(learned(client), static_cast<std::uint64_t>(0)) << "nothing was learned from it";
  EXPECT_THAT(client.Get("/explain")->body, HasSubstr("step \"predict\""));
}

TEST_F(ServiceTest, OneAtATimeHasAPortAndAFolder) {
  Process first(folder_, 0);
  const int port = first.port();
  ASSERT_NE(port, 0) << first.log();
  {
    Process second(folder_, 0);
    EXPECT_EQ(second.port(), 0) << "it keeps its snapshots in the same folder";
    EXPECT_THAT(second.log(), HasSubstr("another player keeps its snapshots"));
  }
  std::filesystem::create_directories(folder_ / "other");
  for (const char* name : {"service", "service.tape"}) {
    std::filesystem::copy_file(folder_ / name, folder_ / "other" / name);
  }
  Process third(folder_ / "other", port);
  EXPECT_EQ(third.port(), 0) << "it listens on the same port";
  EXPECT_THAT(third.log(), HasSubstr("cannot listen"));
}

TEST_F(ServiceTest, EndsWhereverASignalMeetsIt) {
  for (int ms = 0; ms < 200; ms += 10) {
    Process service(folder_, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    const int status = service.end(SIGTERM);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << ms << "\n" << service.log();
  }
  EXPECT_EQ(steptape::newest_snapshot(folder_ / "snapshots"), "") << "nothing was learned";
}

TEST_F(ServiceTest, PredictsAndLearnsThroughAKillAndEndsWithTheBitsOfTheTraining) {
  constexpr std::uint64_t kPredictions = 10'000;
  constexpr int kClients = 4;
  auto process = std::make_unique<Process>(folder_, 0);
  std::atomic<int> port = process->port();
  ASSERT_NE(port, 0) << process->log();

  std::atomic<std::uint64_t> predicted = 0, wrong = 0, unanswered = 0;
  std::atomic<bool> has_ended = false;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const std::string body = images(i % 2 == 0 ? 1 : 16);
      auto client = std::make_unique<httplib::Client>(client_of(port));
      int at = port;
      while (!has_ended) {
        if (at != port) client = std::make_unique<httplib::Client>(client_of(at = port));
        const auto answer = client->Post("/predict", body, "application/json");
        if (!answer) {  // it is being killed, or not back yet
          ++unanswered;
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          continue;
        }
        ++predicted;
        // lessons get their share of the cores, too
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        const json message = json::parse(answer->body, nullptr, false);
        double sum = 0;
        if (answer->status == 200) {
          for (const double share : message["probabilities"][0]) sum += share;
        }
        if (std::abs(sum - 1) > 1e-5) ++wrong;
      }
    });
  }

  std::vector<float> losses(kLearned, 0);
  std::uint64_t lessons = 0;
  const auto teach = [&](std::int64_t from, std::int64_t to) {
    httplib::Client client = client_of(port);
    for (std::int64_t i = from; i < to; ++i) {
      const auto answer = client.Post("/learn", lesson(kRecorded + i).dump(), "application/json");
      ASSERT_TRUE(answer) << i;
      ASSERT_EQ(answer->status, 200) << answer->body;
      const json message = json::parse(answer->body);
      losses[static_cast<std::size_t>(i)] = message["loss"].get<float>();
      ASSERT_EQ(message["learned"].get<std::int64_t>(), i + 1);
      ++lessons;
    }
  };
  constexpr std::int64_t kKilledAfter = 520;
  teach(0, kKilledAfter);
  const std::uint64_t before_the_kill = predicted;
  EXPECT_TRUE(WIFSIGNALED(process->end(SIGKILL)));
  process = std::make_unique<Process>(folder_, 0);
  port = process->port();
  EXPECT_NE(port, 0) << process->log();
  EXPECT_THAT(process->log(), HasSubstr("snapshots/snapshot-000000000500.tape"));
  if (port != 0) {
    httplib::Client client = client_of(port);
    const auto resumed = static_cast<std::int64_t>(learned(client));
    EXPECT_EQ(resumed, 500);
    teach(resumed, kLearned);
    for (int i = 0; i < 6000 && predicted < kPredictions; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  has_ended = true;
  for (std::thread& each : clients) each.join();
  const int status = process->end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << "\n" << process->log();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GE(predicted, kPredictions);
  EXPECT_GT(predicted, before_the_kill) << "predictions go on";
  EXPECT_GT(unanswered, 0U);
  std::printf("%zu predictions by %d clients beside %zu lessons; %zu requests met the kill\n",
              static_cast<std::size_t>(predicted), kClients, static_cast<std::size_t>(lessons),
              static_cast<std::size_t>(unanswered));

  // the training that recorded the trace went on over the same batches, eagerly
  const digits::Outcome expected = digits::read_outcome(digits::beside(SERVICE_TRACE));
  const std::string newest = steptape::newest_snapshot(folder_ / "snapshots");
  EXPECT_THAT(newest, HasSubstr("snapshot-000000001000.tape"));
  const steptape::Player player = steptape::load(newest);
  digits::Outcome found;
  for (const float loss : losses) {
    found.losses.push_back(std::bit_cast<std::uint32_t>(loss));
  }
  for (const auto& [path, digest] : expected.digests) found.add_tensor(path, player.tensor(path));
  EXPECT_EQ(digits::difference(expected, found), "");
}

}  // namespace
}  // namespace service
