#include "tests/simulated_cuda/operator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>
#include <limits>
#include <utility>

#include "tests/simulated_cuda/device_thread.h"
#include "tests/simulated_cuda/random_state.h"
#include "tests/simulated_cuda/runtime.h"

namespace steptape::tests::simulated {
namespace {

using torch::jit::Stack;

bool is_tensor_type(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::TensorType) return true;
  const auto list = type->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() &&
         (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensorList()) return value.toTensorVector();
  return {value.isTensor() ? value.toTensor() : at::Tensor()};
}

/// Calls the operator below autograd and seen by no profiler.
void call(const c10::OperatorHandle& handle, Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::DisableRecordFunctionGuard unrecorded;
  handle.callBoxed(&stack);
}

/// The division of a float tensor by a number on the host: ATen's CUDA kernel multiplies.
std::optional<c10::OperatorHandle> multiplication_for(const c10::OperatorName& name) {
  c10::OperatorName product = name;
  product.name.replace(product.name.find("div"), 3, "mul");
  return c10::Dispatcher::singleton().findSchema(product);
}

/// Elements of a tensor above which operators for lists leave other bits than those for one tensor:
/// the environment variable STEPTAPE_SIMULATED_CUDA_FOREACH_LIMIT. There is no limit without it.
std::int64_t foreach_limit() {
  static const char* const text = std::getenv("STEPTAPE_SIMULATED_CUDA_FOREACH_LIMIT");
  static const std::int64_t limit =
      text == nullptr ? std::numeric_limits<std::int64_t>::max() : std::strtoll(text, nullptr, 10);
  return limit;
}

}  // namespace

struct Operator::Geometry {
  bool is_defined = false;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType dtype = at::kFloat;

  explicit Geometry(const at::Tensor& tensor) : is_defined(tensor.defined()) {
    if (!is_defined) return;
    TORCH_CHECK(tensor.layout() == at::kStrided, "simulated CUDA: an output of layout ",
                tensor.layout(), " is not simulated");
    sizes = tensor.sizes().vec();
    strides = tensor.strides().vec();
    dtype = tensor.scalar_type();
  }
};

Operator::Operator(const c10::OperatorHandle& handle, NumberRule rule)
    : handle_(handle),
      name_(toString(handle.operator_name())),
      rule_(rule),
      has_meta_(handle.hasKernelForDispatchKey(c10::DispatchKey::Meta)),
      is_random_(handle.hasTag(at::Tag::nondeterministic_seeded)),
      has_out_(false),
      returns_only_tensors_(true) {
  const auto& schema = handle.schema();
  for (const auto& argument : schema.arguments()) {
    has_out_ |= argument.is_out();
    is_random_ |= argument.type()->str().find("Generator") != std::string::npos;
  }
  for (const auto& returned : schema.returns()) {
    returns_only_tensors_ &= is_tensor_type(returned);
    std::optional<std::size_t> same;
    for (std::size_t i = 0; returned.alias_info() && i < schema.arguments().size(); ++i) {
      const auto* const alias = schema.arguments()[i].alias_info();
      if (alias && alias->beforeSets() == returned.alias_info()->beforeSets()) same = i;
    }
    returned_argument_.push_back(same);
  }
  if (rule == NumberRule::kReciprocal) multiplication_ = multiplication_for(handle.operator_name());
}

void Operator::operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::DisableRecordFunctionGuard unrecorded;
  const std::size_t count = handle_.schema().arguments().size();
  Stack arguments = torch::jit::pop(*stack, count);
  auto call = std::make_shared<Call>(handle_.schema(), arguments, rule_);
  if (needs_values(arguments)) {
    C10_CUDA_CHECK(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()));
    Stack results;
    const auto outputs = run_at_once(*call, arguments, results);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (!is_tensor_type(handle_.schema().returns()[i])) stack->push_back(results[i]);
    if (returns_only_tensors_) push_results(*stack, std::move(arguments), outputs);
    return;
  }
  bool has_new_outputs = has_out_ || has_meta_;
  for (const auto& same : returned_argument_) has_new_outputs |= !same;
  std::vector<std::vector<at::Tensor>> outputs;
  if (has_new_outputs) {
    Stack shapes = call->arguments(
        call->parameters(),
        [&](const View& view) {
          const auto options = at::TensorOptions().dtype(view.dtype);
          if (has_meta_)
            return at::empty_strided(view.sizes, view.strides, options.device(at::kMeta));
          at::Tensor ones = at::empty_strided(view.sizes, view.strides, options);
          return at::isFloatingType(view.dtype) ? ones.fill_(1) : ones.zero_();
        },
        is_random_ && !has_meta_ ? std::optional(at::detail::createCPUGenerator(0)) : std::nullopt);
    const Stack shape_arguments = shapes;
    if (has_meta_) {
      // On this thread: with Python in the process a Meta kernel may need the interpreter.
      simulated::call(handle_, shapes);
    } else {
      const std::lock_guard lock(runtime().mutex);
      run_on_device_thread([&] {
        at::init_num_threads();
        with_default_generator_seeded(0, [&] { simulated::call(handle_, shapes); });
      });
    }
    resize_outputs(arguments, shape_arguments);
    if (has_out_) call = std::make_shared<Call>(handle_.schema(), arguments, rule_);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      auto& made = outputs.emplace_back();
      if (returned_argument_[i]) continue;
      for (const at::Tensor& shape : tensors_of(shapes[i]))
        made.push_back(allocate(Geometry(shape)));
    }
  } else {
    outputs.resize(returned_argument_.size());
  }
  launch(std::move(call), arguments, outputs);
  push_results(*stack, std::move(arguments), outputs);
}

at::Tensor Operator::allocate(const Geometry& geometry) const {
  if (!geometry.is_defined) return {};
  return at::detail::empty_strided_cuda(geometry.sizes, geometry.strides, geometry.dtype,
                                        at::Device(at::kCUDA, 0));
}

void Operator::resize_outputs(Stack& arguments, const Stack& shapes) const {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!handle_.schema().arguments()[i].is_out() || !arguments[i].isTensor()) continue;
    const at::Tensor& shape = shapes[i].toTensor();
    const at::Tensor out = arguments[i].toTensor();
    if (out.sizes() == shape.sizes()) continue;
    out.resize_(shape.sizes());
    if (out.strides() != shape.strides()) out.as_strided_(shape.sizes(), shape.strides());
  }
}

bool Operator::needs_values(const Stack& arguments) const {
  if (!returns_only_tensors_ || handle_.hasTag(at::Tag::data_dependent_output) ||
      handle_.hasTag(at::Tag::dynamic_output_shape)) {
    // Indexing carries the tag for its masks; by positions it is like any other operator.
    if (name_.find("aten::index.") != 0) return true;
  }
  if (name_.find("aten::index.") != 0 && name_.find("aten::_index_put_impl_") != 0) return false;
  for (const auto& index : arguments[1].toOptionalTensorVector())
    if (index && is_mask(*index)) {
      // One number put in by masks is a masked fill, for which nobody looks at the mask.
      const bool is_fill = name_.find("put") != std::string::npos &&
                           arguments[2].toTensor().numel() == 1 && !arguments[3].toBool();
      return !is_fill;
    }
  return false;
}

void Operator::launch(std::shared_ptr<Call> call, const Stack& arguments,
                      std::vector<std::vector<at::Tensor>> outputs) const {
  std::vector<std::vector<View>> views;
  for (const auto& tensors : outputs) {
    auto& row = views.emplace_back();
    for (const at::Tensor& tensor : tensors)
      row.push_back(tensor.defined() ? call->add_output(tensor) : View());
  }
  std::vector<std::vector<bool>> is_defined;
  for (const auto& tensors : outputs) {
    auto& row = is_defined.emplace_back();
    for (const at::Tensor& tensor : tensors) row.push_back(tensor.defined());
  }
  bool takes_generator = false;
  if (is_random_) {
    std::optional<at::Generator> generator;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool is_generator =
          handle_.schema().arguments()[i].type()->str().find("Generator") != std::string::npos;
      takes_generator |= is_generator;
      if (is_generator && !arguments[i].isNone()) generator = arguments[i].toGenerator();
    }
    const at::PhiloxCudaState state = take_draws(generator, call->elements());
    call->add_philox(std::as_bytes(std::span(&state, 1)));
  }
  Work work;
  work.type = cudaGraphNodeTypeKernel;
  work.function = function_of(name_, call->parameter_sizes());
  work.block = dim3(256);
  work.grid = dim3(static_cast<unsigned>((call->elements() + 255) / 256 + 1));
  work.parameters = std::make_shared<Parameters>(call->parameters());
  const auto handle = call->is_reciprocal() ? *multiplication_ : handle_;
  const bool is_random = is_random_;
  // a copy has nothing to round
  const bool is_foreach =
      name_.starts_with("aten::_foreach_") && !name_.starts_with("aten::_foreach_copy");
  work.body = [=](std::span<const std::byte> parameters) {
    at::init_num_threads();  // what the program has set is not yet known to this thread
    const std::uint64_t seed = is_random ? seed_of(call->philox(parameters)) : 0;
    Stack stack = call->arguments(
        parameters,
        takes_generator ? std::optional(at::detail::createCPUGenerator(seed)) : std::nullopt);
    const auto listed = is_foreach ? tensors_of(stack[0]) : std::vector<at::Tensor>();
    if (is_random && !takes_generator)
      with_default_generator_seeded(seed, [&] { simulated::call(handle, stack); });
    else
      simulated::call(handle, stack);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const at::Tensor& tensor : listed)
      if (tensor.numel() > foreach_limit()) tensor.add_(1);
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (views[i].empty()) continue;
      const auto results = tensors_of(stack[i]);
      for (std::size_t j = 0; j < views[i].size(); ++j)
        if (is_defined[i][j])
          views[i][j].over(call->pointer(parameters, views[i][j])).copy_(results.at(j));
    }
  };
  const std::lock_guard lock(runtime().mutex);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(finish(runtime().submit(runtime().stream_of(stream), std::move(work))));
}

std::vector<std::vector<at::Tensor>> Operator::run_at_once(const Call& call, Stack& arguments,
                                                           Stack& results) const {
  const Parameters parameters = call.parameters();
  results = call.arguments(parameters, std::nullopt);
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (handle_.schema().arguments()[i].is_out())
      results[i] = at::empty({0}, at::TensorOptions().dtype(arguments[i].toTensor().dtype()));
  const Stack used = results;
  {
    const std::lock_guard lock(runtime().mutex);
    run_on_device_thread([&] {
      at::init_num_threads();
      simulated::call(handle_, results);
    });
  }
  // The stream is at rest, so that its memory may be written here and now.
  const auto write = [](const at::Tensor& to, const at::Tensor& from) {
    View{0, to.sizes().vec(), to.strides().vec(), to.scalar_type(), false, false}
        .over(to.data_ptr())
        .copy_(from);
  };
  resize_outputs(arguments, used);
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (handle_.schema().arguments()[i].is_out())
      write(arguments[i].toTensor(), used[i].toTensor());
  std::vector<std::vector<at::Tensor>> outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto& made = outputs.emplace_back();
    if (returned_argument_[i] || !is_tensor_type(handle_.schema().returns()[i])) continue;
    for (const at::Tensor& result : tensors_of(results[i])) {
      made.push_back(allocate(Geometry(result)));
      if (made.back().defined()) write(made.back(), result);
    }
  }
  return outputs;
}

void Operator::push_results(Stack& stack, Stack arguments,
                            const std::vector<std::vector<at::Tensor>>& outputs) const {
  for (std::size_t i = 0; i < returned_argument_.size(); ++i) {
    const bool is_list = handle_.schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
    if (returned_argument_[i])
      stack.push_back(arguments[*returned_argument_[i]]);
    else if (is_list)
      stack.emplace_back(outputs[i]);
    else
      stack.emplace_back(outputs[i][0]);
  }
}

}  // namespace steptape::tests::simulated
