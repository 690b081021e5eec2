#include "tests/replayer/guarded_memory.h"

#include <ATen/Functions.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

#include "replayer/runtime/tensor_on.h"
#include "trace/model.h"

namespace steptape::tests {

GuardedMemory::GuardedMemory(std::size_t bytes)
    : bytes_(bytes),
      page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      pages_((bytes + page_ - 1) / page_) {
  void* mapped = mmap(nullptr, (pages_ + 2) * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap failed");
  whole_ = static_cast<char*>(mapped);
}

GuardedMemory::~GuardedMemory() { munmap(whole_, (pages_ + 2) * page_); }

void* GuardedMemory::address() const { return whole_ + (pages_ + 1) * page_ - bytes_; }

void GuardedMemory::open(bool is_open) {
  if (pages_ != 0)
    mprotect(whole_ + page_, pages_ * page_, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

at::Tensor GuardedTensors::make(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
  const std::size_t bytes = count * c10::elementSize(dtype);
  memories_.push_back(std::make_unique<GuardedMemory>(bytes));
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      replayer::storage_over(memories_.back()->address(), bytes),
      c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

void GuardedTensors::open(bool is_open) {
  for (const auto& memory : memories_) memory->open(is_open);
}

namespace {

sigjmp_buf before_the_touch;

void go_back(int) { siglongjmp(before_the_touch, 1); }

}  // namespace

bool touches_nothing_guarded(const std::function<void()>& body) {
  struct sigaction back = {}, before_segv = {}, before_bus = {};
  back.sa_handler = &go_back;
  sigemptyset(&back.sa_mask);
  sigaction(SIGSEGV, &back, &before_segv);
  sigaction(SIGBUS, &back, &before_bus);
  const auto end = [&] {
    sigaction(SIGSEGV, &before_segv, nullptr);
    sigaction(SIGBUS, &before_bus, nullptr);
  };
  if (sigsetjmp(before_the_touch, 1) != 0) {
    end();
    return false;
  }
  try {
    body();
  } catch (...) {
    end();
    throw;
  }
  end();
  return true;
}

}  // namespace steptape::tests
