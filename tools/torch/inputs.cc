#include "tools/torch/inputs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/serialize.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "live/tensors.h"
#include "steptape/error.h"
#include "trace/dtype.h"

namespace steptape::tools {
namespace {

std::vector<char> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, path + ": " + std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> tensors;
  const auto add = [&](const c10::IValue& item) {
    if (!item.isTensor())
      throw Error(ErrorCode::kDataLoss, "it holds something that is not a tensor");
    tensors.push_back(item.toTensor());
  };
  if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) add(item);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) add(item);
  } else {
    throw Error(ErrorCode::kDataLoss, "it holds no tensor, list or tuple of tensors");
  }
  return tensors;
}

std::vector<at::Tensor> load_tensors(const std::string& path) {
  const std::vector<char> bytes = read_bytes(path);
  std::string python_problem;
  try {
    return tensors_in(torch::jit::pickle_load(bytes));
  } catch (const std::exception& error) {
    python_problem = error.what();
  }
  try {
    std::vector<at::Tensor> tensors;
    torch::load(tensors, path);
    return tensors;
  } catch (const std::exception&) {
    throw Error(ErrorCode::kDataLoss,
                path + ": not a file of tensors that torch.save or torch::save wrote: " +
                    python_problem.substr(0, python_problem.find('\n')));
  }
}

}  // namespace

Inputs::Inputs(const std::string& source, const std::vector<TensorSpec>& specs, std::uint64_t seed)
    : specs_(specs), random_(source == "random"), generator_(at::detail::createCPUGenerator(seed)) {
  if (!random_) loaded_ = load_tensors(source);
}

std::vector<at::Tensor> Inputs::next() {
  if (!random_) return loaded_;
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& spec : specs_) tensors.push_back(made_up(spec));
  return tensors;
}

at::Tensor Inputs::made_up(const TensorSpec& spec) {
  const at::ScalarType dtype = live::scalar_type_of(trace::dtype_of(spec.dtype));
  if (c10::isIntegralType(dtype, /*includeBool=*/true)) {
    const bool known = spec.low <= spec.high;
    return at::randint(known ? spec.low : 0, known ? spec.high + 1 : 1, spec.sizes, generator_,
                       at::TensorOptions(dtype));
  }
  return at::randn(spec.sizes, generator_, at::TensorOptions(at::kFloat)).to(dtype);
}

void add_options(CLI::App& command, PlayOptions& options, const std::string& steps) {
  command.add_option("file", options.file, "The trace; saved with state")->required();
  command.add_option("--step", options.step,
                     "The step's name; needed when the trace holds several");
  command.add_option("--inputs", options.inputs,
                     "A file of tensors that torch.save wrote, or `random` (the default)");
  command.add_option("--steps", options.steps, steps)->check(CLI::PositiveNumber);
  command.add_option("--seed", options.seed, "Seed of random inputs");
}

Player load_player(const PlayOptions& options) {
  LoadOptions load_options;
  if (options.any_environment) load_options.environment = Environment::kAny;
  return load(options.file, load_options);
}

PlayerStep choose_step(Player& player, const std::string& wanted) {
  if (!wanted.empty()) return player.step(wanted);
  const std::vector<std::string> names = player.steps();
  if (names.size() == 1) return player.step(names.front());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the trace holds several steps; choose one with --step: {}",
                          fmt::join(names, ", ")));
}

void use_recorded_threads(const PlayerStep& step) {
  if (const std::string threads = step.ambient("threads"); !threads.empty()) {
    at::set_num_threads(std::stoi(threads));
  }
}

}  // namespace steptape::tools
