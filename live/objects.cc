#include "live/objects.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <variant>

#include "live/generator_state.h"
#include "live/optimizer_layout.h"
#include "steptape/error.h"

namespace steptape::live {
namespace {

void check_name(const std::string& name, const Objects::Impl& impl) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::ranges::all_of(name, good)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        c10::str("the name '", name, "' must be of letters, digits and '_', and not empty"));
  }
  const auto taken = [&](const auto& named) { return named.name == name; };
  if (std::ranges::any_of(impl.modules, taken) || std::ranges::any_of(impl.optimizers, taken) ||
      std::ranges::any_of(impl.foreign, taken) || std::ranges::any_of(impl.tensors, taken) ||
      std::ranges::any_of(impl.generators, taken)) {
    throw Error(ErrorCode::kInvalidArgument,
                c10::str("the name '", name, "' is tracked already: take another"));
  }
}

}  // namespace

Objects::Objects() : impl_(std::make_unique<Impl>()) {
  impl_->generators.push_back({"default", at::detail::getDefaultCPUGenerator()});
}
Objects::~Objects() = default;
Objects::Objects(Objects&&) noexcept = default;
Objects& Objects::operator=(Objects&&) noexcept = default;

void Objects::track(std::string name, torch::nn::Module& module) {
  check_name(name, *impl_);
  impl_->modules.push_back({std::move(name), &module, std::nullopt});
  impl_->order.push_back(&module);
}

void Objects::track(std::string name, std::shared_ptr<torch::nn::Module> module) {
  check_name(name, *impl_);
  if (module == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, c10::str("module '", name, "' is null"));
  }
  impl_->modules.push_back({std::move(name), module.get(), module});
  impl_->order.push_back(module.get());
}

void Objects::track(std::string name, torch::optim::Optimizer& optimizer) {
  check_name(name, *impl_);
  impl_->optimizers.push_back({std::move(name), &optimizer, std::nullopt});
  impl_->order.push_back(&optimizer);
}

void Objects::track(std::string name, std::shared_ptr<torch::optim::Optimizer> optimizer) {
  check_name(name, *impl_);
  if (optimizer == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, c10::str("optimizer '", name, "' is null"));
  }
  impl_->optimizers.push_back({std::move(name), optimizer.get(), optimizer});
  impl_->order.push_back(optimizer.get());
}

void Objects::track(std::string name, std::shared_ptr<const Foreign> object) {
  check_name(name, *impl_);
  const auto* modules = dynamic_cast<const ForeignModules*>(object.get());
  const auto* optimizer = dynamic_cast<const ForeignOptimizer*>(object.get());
  if (modules != nullptr || optimizer != nullptr) impl_->order.push_back(object->identity());
  impl_->foreign.push_back({std::move(name), std::move(object), modules, optimizer});
}

void Objects::track(std::string name, at::Tensor tensor) {
  check_name(name, *impl_);
  if (!tensor.defined()) {
    throw Error(ErrorCode::kInvalidArgument, c10::str("tensor '", name, "' is undefined"));
  }
  impl_->order.push_back(tensor.unsafeGetTensorImpl());
  impl_->tensors.push_back({std::move(name), std::move(tensor)});
}

void Objects::track(std::string name, at::Generator generator) {
  check_name(name, *impl_);
  if (!generator.defined()) {
    throw Error(ErrorCode::kInvalidArgument, c10::str("generator '", name, "' is undefined"));
  }
  impl_->order.push_back(generator.unsafeGetGeneratorImpl());
  impl_->generators.push_back({std::move(name), std::move(generator)});
}

void Objects::check_alive() const {
  const auto check = [](const auto& objects, const char* kind) {
    for (const auto& object : objects) {
      if (!object.is_alive()) {
        throw Error(ErrorCode::kFailedPrecondition,
                    c10::str(kind, " '", object.name, "' was tracked and no longer exists"));
      }
    }
  };
  check(impl_->modules, "module");
  check(impl_->optimizers, "optimizer");
  for (const NamedForeign& foreign : impl_->foreign) {
    if (foreign.object->is_alive()) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                c10::str("'", foreign.name, "' was tracked and no longer exists"));
  }
}

std::vector<std::pair<std::string, torch::optim::Optimizer*>> Objects::optimizers() const {
  std::vector<std::pair<std::string, torch::optim::Optimizer*>> result;
  for (const auto& optimizer : impl_->optimizers) {
    result.emplace_back(optimizer.name, optimizer.object);
  }
  return result;
}

std::vector<std::pair<std::string, at::Generator>> Objects::generators() const {
  std::vector<std::pair<std::string, at::Generator>> result;
  for (const auto& generator : impl_->generators) {
    result.emplace_back(generator.name, generator.generator);
  }
  if (!at::hasCUDA()) return result;
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  for (c10::DeviceIndex index = 0; index < hooks.deviceCount(); ++index) {
    if (!hooks.hasPrimaryContext(index)) continue;  // nothing has been done there
    const trace::Device device{trace::DeviceKind::kCuda, index};
    result.emplace_back(default_generator_path(device), default_generator(device));
  }
  return result;
}

std::vector<std::pair<std::string, std::shared_ptr<const Foreign>>> Objects::foreign() const {
  std::vector<std::pair<std::string, std::shared_ptr<const Foreign>>> result;
  for (const NamedForeign& foreign : impl_->foreign) {
    result.emplace_back(foreign.name, foreign.object);
  }
  return result;
}

std::vector<const void*> Objects::identities() const { return impl_->order; }

std::string Objects::text() const {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& kind) {
    text += (text.empty() ? "" : ", ") + name + " (" + kind + ")";
  };
  for (const auto& module : impl_->modules) add(module.name, "module");
  for (const auto& optimizer : impl_->optimizers) {
    add(optimizer.name, optimizer.is_alive() ? type_name(*optimizer.object) : "dead optimizer");
  }
  for (const NamedForeign& foreign : impl_->foreign) {
    if (foreign.modules != nullptr) add(foreign.name, "module");
    if (foreign.optimizer != nullptr) add(foreign.name, foreign.optimizer->type());
  }
  for (const auto& tensor : impl_->tensors) add(tensor.name, "tensor");
  for (const auto& generator : impl_->generators) {
    if (generator.name != "default") add(generator.name, "generator");
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace steptape::live
