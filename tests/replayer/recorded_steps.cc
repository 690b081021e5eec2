#include "tests/replayer/recorded_steps.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstring>

namespace steptape::tests {

std::shared_ptr<trace::Recording> recorded(const StepBody& body,
                                           const std::vector<at::Tensor>& inputs) {
  std::vector<live::Argument> arguments;
  for (const at::Tensor& input : inputs) arguments.push_back({input, {}, true});
  const live::Objects nothing;
  const at::NoGradGuard no_grad;
  recorder::Recorded result = recorder::record([&] { return body(inputs); }, arguments, nothing,
                                               recorder::interceptor(Interception::kDispatchMode));
  return std::make_shared<trace::Recording>(std::move(result.recording));
}

std::vector<at::Tensor> run(replayer::Executor& executor, const std::vector<at::Tensor>& inputs,
                            const replayer::Inspection& inspection) {
  const trace::Recording& recording = *executor.program().recording;
  std::vector<void*> memory;
  for (const trace::BufferId id : executor.bound()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto tensor = std::get<trace::TensorRef>(recording.inputs[i].value.data).id;
      if (recording.tensors[tensor].buffer == id) {
        memory.push_back(inputs[i].mutable_data_ptr());
        break;
      }
    }
  }
  return executor.run({.memory = memory, .inspection = inspection}).results;
}

replayer::GeneratorOf default_generator() {
  return [](const std::string&) { return at::detail::getDefaultCPUGenerator(); };
}

std::vector<NamedBody> bodies() {
  using Tensors = std::vector<at::Tensor>;
  const at::Tensor a = at::rand({6, 8}), b = at::rand({8, 5});
  return {
      {"views",
       [](const Tensors& x) -> Tensors {
         return {x[0].t().reshape({4, 12}).narrow(0, 1, 2).sum(1)};
       },
       {a}},
      {"chain",
       [](const Tensors& x) -> Tensors { return {at::relu(x[0].mm(x[1]) * 0.5 + 1).sum()}; },
       {a, b}},
      {"in_place",
       [](const Tensors& x) -> Tensors {
         at::Tensor y = x[0].clone();
         y.t_().mul_(3).unsqueeze_(0);
         return {y.add(1), y.sum()};
       },
       {a}},
      {"lists",
       [](const Tensors& x) -> Tensors {
         const auto parts = x[0].split(3, 1);
         return {at::cat({parts[1], parts[0]}, 1), at::stack({x[0], x[0]}).mean()};
       },
       {a}},
      {"indices",
       [](const Tensors& x) -> Tensors {
         const at::Tensor order = x[0].sum(1).argsort();
         return {x[0].index({order}), std::get<0>(x[0].topk(2))};
       },
       {a}},
      {"empty",
       [](const Tensors& x) -> Tensors {
         at::Tensor y = at::empty({6, 8});
         y.fill_(2);
         y.narrow(0, 0, 3).copy_(x[0].narrow(0, 3, 3));
         return {y.sum(0), (y * x[0]).sum()};
       },
       {a}},
      {"several_results",
       [](const Tensors& x) -> Tensors {
         const auto [values, places] = x[0].max(1);
         return {values * 2, places + 1};
       },
       {a}},
      {"random",
       [](const Tensors& x) -> Tensors {
         return {x[0] * at::rand({6, 8}) + at::randn({6, 8})};
       },
       {a}},
      {"complex",
       [](const Tensors& x) -> Tensors {
         const at::Tensor z = at::complex(x[0], x[0] + 1);
         return {at::view_as_real(z.conj().t().mm(z).clone()).sum(0)};
       },
       {a}},
      {"softmax",
       [](const Tensors& x) -> Tensors { return {at::log_softmax(x[0], 1).exp().sum(1)}; },
       {a}},
  };
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace steptape::tests
