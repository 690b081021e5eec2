#include "replayer/player/player_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <cstring>

#include "live/generator_state.h"
#include "replayer/run/tensor_on.h"
#include "steptape/error.h"
#include "trace/text.h"

namespace steptape::replayer {
namespace {

constexpr std::string_view kGenerator = "generator.";
/// "player.runs[train]": how often a step ran.
constexpr std::string_view kRuns = "player.runs[";

/// The step of such a path; empty for others.
std::string step_of(const std::string& path) {
  if (!path.starts_with(kRuns) || !path.ends_with("]")) return "";
  return path.substr(kRuns.size(), path.size() - kRuns.size() - 1);
}

/// Of a process there is one default generator.
std::mutex& default_generator_mutex() {
  static std::mutex mutex;
  return mutex;
}

at::Tensor copy_of(const at::Tensor& state) {
  trace::Tensor geometry;
  geometry.dtype = trace::DType::kUInt8;
  geometry.sizes = {static_cast<std::int64_t>(state.nbytes())};
  geometry.strides = {1};
  const c10::Storage storage = allocate(state.nbytes(), 0);
  std::memcpy(storage.mutable_data(), state.const_data_ptr(), state.nbytes());
  return tensor_on(storage, geometry);
}

at::Tensor bytes_as_tensor(const trace::Saved& saved, const at::Tensor& like) {
  if (saved.content->size() != like.nbytes()) {
    throw Error(ErrorCode::kDataLoss, saved.path + ": " + std::to_string(saved.content->size()) +
                                          " bytes of state, this torch's generator has " +
                                          std::to_string(like.nbytes()));
  }
  trace::Tensor geometry;
  geometry.dtype = trace::DType::kUInt8;
  geometry.sizes = {static_cast<std::int64_t>(saved.content->size())};
  geometry.strides = {1};
  const c10::Storage storage = allocate(saved.content->size(), 0);
  std::memcpy(storage.mutable_data(), saved.content->data(), saved.content->size());
  return tensor_on(storage, geometry);
}

trace::Saved saved_state(const std::string& path, const at::Tensor& state) {
  return {std::string(kGenerator) + path, 0,
          trace::make_blob(state.const_data_ptr(), state.nbytes())};
}

}  // namespace

PlayerState::PlayerState(const std::vector<trace::Saved>& saved,
                         const std::set<std::string>& buffers) {
  const at::Tensor like = [] {
    const std::lock_guard lock(default_generator_mutex());
    return live::state_of(at::detail::getDefaultCPUGenerator());
  }();
  constexpr std::string_view kOfDevice = "generator.default.cuda:";
  const auto state_in = [&like](const trace::Saved& entry) {
    at::Tensor state = bytes_as_tensor(entry, like);
    if (!is_generator_state(state))
      throw Error(ErrorCode::kDataLoss, entry.path + ": no state of a generator");
    return state;
  };
  for (const trace::Saved& entry : saved) {
    const bool is_memory = entry.content && buffers.contains(entry.path);
    if (const std::string step = step_of(entry.path); !step.empty()) {
      runs_[step] = static_cast<std::uint64_t>(trace::number_of(entry.number));
    } else if (trace::is_number(entry.number)) {
      numbers_.emplace(entry.path, entry.number);
    } else if (entry.path.starts_with(kOfDevice) && !is_memory) {
      // steps that draw from it are refused
    } else if (entry.path == "generator.default" && !is_memory) {
      default_generator_ = state_in(entry);
    } else if (entry.path.starts_with(kGenerator) && !is_memory) {
      at::Generator generator = at::detail::createCPUGenerator();
      live::set_state(generator, state_in(entry));
      generators_.emplace(entry.path.substr(kGenerator.size()), std::move(generator));
    } else {
      const c10::Storage storage = allocate(entry.content->size(), entry.address_mod_64);
      if (!entry.content->empty()) {
        std::memcpy(storage.mutable_data(), entry.content->data(), entry.content->size());
      }
      buffers_.emplace(entry.path, storage);
    }
  }
  if (!default_generator_.defined()) default_generator_ = like;
}

PlayerState::PlayerState(const PlayerState& other, std::shared_ptr<Publication> publication)
    : numbers_(other.numbers_),
      default_generator_(copy_of(other.default_generator_)),
      runs_(other.runs_),
      publication_(std::move(publication)) {
  for (const auto& [path, generator] : other.generators_) {
    at::Generator own = at::detail::createCPUGenerator();
    live::set_state(own, live::state_of(generator));
    generators_.emplace(path, std::move(own));
  }
  renew();
}

PlayerState::~PlayerState() {
  if (publication_) publication_->end(reading_);
}

void PlayerState::renew() {
  if (!publication_ || !publication_->renew(reading_)) return;
  buffers_ = reading_.from->memory;
  ++version_;
}

void PlayerState::put(const std::string& path, const c10::Storage& storage) {
  buffers_.insert_or_assign(path, storage);
}

trace::Value* PlayerState::number(const std::string& path) {
  const auto found = numbers_.find(path);
  return found == numbers_.end() ? nullptr : &found->second;
}

std::vector<std::string> PlayerState::numbers() const {
  std::vector<std::string> paths;
  for (const auto& [path, number] : numbers_) paths.push_back(path);
  return paths;
}

std::string PlayerState::misfit(const std::string& path, const trace::Value& value) const {
  const auto found = numbers_.find(path);
  if (found == numbers_.end()) return "";
  const double number = trace::number_of(value);
  const bool is_integer = std::holds_alternative<std::int64_t>(value.data);
  // integers that a double holds exactly
  constexpr double kMost = 9007199254740992;
  if (std::holds_alternative<bool>(found->second.data)) {
    return number == 0 || number == 1 ? "" : trace::words_of(value) + " is neither 0 nor 1";
  }
  if (!std::holds_alternative<std::int64_t>(found->second.data) || is_integer) return "";
  return std::abs(number) <= kMost && number == std::trunc(number)
             ? ""
             : trace::words_of(value) + " is no integer, or too large";
}

bool PlayerState::is_generator_state(const at::Tensor& state) {
  try {
    at::Generator scratch = at::detail::createCPUGenerator();
    live::set_state(scratch, state);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

bool PlayerState::set_number(const std::string& path, const trace::Value& value) {
  const auto found = numbers_.find(path);
  if (found == numbers_.end()) return false;
  set_.insert(path);
  trace::Value& number = found->second;
  if (number.data.index() == value.data.index()) {
    number = value;
  } else if (std::holds_alternative<bool>(number.data)) {
    number = {trace::number_of(value) != 0};
  } else if (std::holds_alternative<std::int64_t>(number.data)) {
    number = {static_cast<std::int64_t>(trace::number_of(value))};
  } else {
    number = {trace::Real{trace::number_of(value)}};
  }
  return true;
}

at::Generator PlayerState::generator(const std::string& path) {
  if (path == "default") return at::detail::getDefaultCPUGenerator();
  const auto found = generators_.find(path);
  if (found == generators_.end()) {
    throw Error(ErrorCode::kUnsupported,
                "the trace holds no state of the generator \"" + path + "\"; save it with state");
  }
  return found->second;
}

std::vector<std::string> PlayerState::generators() const {
  std::vector<std::string> paths = {"default"};
  for (const auto& [path, generator] : generators_) paths.push_back(path);
  return paths;
}

at::Tensor PlayerState::generator_state(const std::string& path) const {
  return path == "default" ? copy_of(default_generator_) : live::state_of(generators_.at(path));
}

void PlayerState::set_generator_state(const std::string& path, const at::Tensor& state) {
  if (path == "default") {
    default_generator_ = copy_of(state);
  } else {
    live::set_state(generators_.at(path), state);
  }
}

void PlayerState::seed(std::uint64_t value) {
  const at::Tensor state = live::state_of(at::detail::createCPUGenerator(value));
  for (const std::string& path : generators()) set_generator_state(path, state);
}

std::uint64_t PlayerState::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [path, storage] : buffers_) bytes += storage.nbytes();
  return bytes;
}

std::vector<trace::Saved> PlayerState::save() const {
  std::vector<trace::Saved> saved;
  for (const auto& [path, storage] : buffers_) {
    const auto remainder = reinterpret_cast<std::uintptr_t>(storage.data()) % 64;
    saved.push_back({path, static_cast<std::uint8_t>(storage.nbytes() == 0 ? 0 : remainder),
                     trace::make_blob(storage.data(), storage.nbytes())});
  }
  for (const auto& [path, number] : numbers_) saved.push_back({path, 0, nullptr, number});
  for (const auto& [step, runs] : runs_) {
    if (runs == 0) continue;
    saved.push_back({std::string(kRuns) + step + "]", 0, nullptr,
                     trace::Value{static_cast<std::int64_t>(runs)}});
  }
  saved.push_back(saved_state("default", default_generator_));
  for (const auto& [path, generator] : generators_) {
    saved.push_back(saved_state(path, live::state_of(generator)));
  }
  return saved;
}

PlayerState::DefaultGenerator::DefaultGenerator(PlayerState& state)
    : lock_(default_generator_mutex()),
      state_(state),
      process_(live::state_of(at::detail::getDefaultCPUGenerator())) {
  live::set_state(at::detail::getDefaultCPUGenerator(), state_.default_generator_);
}

PlayerState::DefaultGenerator::~DefaultGenerator() {
  state_.default_generator_ = live::state_of(at::detail::getDefaultCPUGenerator());
  live::set_state(at::detail::getDefaultCPUGenerator(), process_);
}

}  // namespace steptape::replayer
