#include "tests/session/training.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>

namespace steptape::tests {

namespace {

c10::Device& the_device() {
  static c10::Device device(c10::kCPU);
  return device;
}

}  // namespace

c10::Device device() { return the_device(); }
void train_on(c10::Device device) { the_device() = device; }

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::vector<at::Tensor> visible_state(const torch::nn::Module& model) {
  std::vector<at::Tensor> tensors = model.parameters();
  for (const at::Tensor& parameter : model.parameters()) tensors.push_back(parameter.grad());
  for (const at::Tensor& buffer : model.buffers()) tensors.push_back(buffer);
  return tensors;
}

std::vector<at::Tensor> copied(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
  }
  return copies;
}

::testing::AssertionResult all_same_bits(const std::vector<at::Tensor>& a,
                                         const std::vector<at::Tensor>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " tensors, " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i]))
      return ::testing::AssertionFailure() << "tensor " << i << " differs";
  }
  return ::testing::AssertionSuccess();
}

NetImpl::NetImpl(NetOptions options) {
  fc1 = register_module("fc1", torch::nn::Linear(64, 32));
  if (options.batch_norm) norm = register_module("norm", torch::nn::BatchNorm1d(32));
  if (options.dropout > 0)
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
  fc2 = register_module("fc2", torch::nn::Linear(32, 10));
}

at::Tensor NetImpl::forward(at::Tensor x) {
  x = fc1->forward(x);
  if (norm) x = norm->forward(x);
  x = torch::relu(x);
  if (dropout) x = dropout->forward(x);
  return fc2->forward(x);
}

std::vector<Batch> make_batches(std::size_t count, std::int64_t size, std::uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor images = at::randn({size, 64}, generator);
    const at::Tensor labels = at::randint(0, 10, {size}, generator, at::kLong);
    batches.push_back({images.to(device()), labels.to(device())});
  }
  return batches;
}

Options quiet() {
  Options options;
  options.verify.rate = 0;
  return options;
}

}  // namespace steptape::tests
