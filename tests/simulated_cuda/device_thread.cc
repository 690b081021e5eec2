#include "tests/simulated_cuda/device_thread.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace steptape::tests::simulated {
namespace {

class DeviceThread {
 public:
  DeviceThread() {
    std::thread([this] { loop(); }).detach();
  }

  void run(const std::function<void()>& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    changed_.notify_all();
    changed_.wait(lock, [&] { return work_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return work_ != nullptr; });
      try {
        (*work_)();
      } catch (...) {
        error_ = std::current_exception();
      }
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
};

}  // namespace

void run_on_device_thread(const std::function<void()>& work) {
  // Not destroyed: the thread waits in it when the process ends.
  static auto& thread = *new DeviceThread;
  thread.run(work);
}

}  // namespace steptape::tests::simulated
