#include "replayer/player/player_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "live/contents.h"
#include "live/generator_state.h"
#include "live/tensors.h"
#include "replayer/runtime/tensor_on.h"
#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::replayer {
namespace {

constexpr std::string_view kGenerator = "generator.";
constexpr std::string_view kDefault = "default";
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

/// "default" is the CPU's; "default.cuda:0" a device's.
bool is_default(const std::string& path) {
  return path == kDefault || path.starts_with("default.");
}

c10::Device device_of_default(const std::string& path) {
  return path == kDefault ? c10::kCPU : c10::Device(path.substr(kDefault.size() + 1));
}

at::Generator default_generator(c10::Device device) {
  if (device.is_cpu()) return at::detail::getDefaultCPUGenerator();
  at::globalContext().lazyInitDevice(device.type());
  return at::globalContext().defaultGenerator(device);
}

at::Generator new_generator(c10::Device device) {
  return device.is_cpu() ? at::detail::createCPUGenerator() : default_generator(device).clone();
}

/// False where it cannot be in this state.
bool take_state(const at::Generator& generator, const at::Tensor& state) {
  try {
    live::set_state(generator, state);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

at::Tensor copy_of(const at::Tensor& state) {
  return tensor_of_bytes({static_cast<const std::byte*>(state.const_data_ptr()), state.nbytes()});
}

at::Tensor bytes_as_tensor(const trace::Saved& saved, const at::Tensor& like) {
  if (saved.content->size() != like.nbytes()) {
    throw Error(ErrorCode::kDataLoss, saved.path + ": " + std::to_string(saved.content->size()) +
                                          " bytes of state, this torch's generator has " +
                                          std::to_string(like.nbytes()));
  }
  return tensor_of_bytes(std::as_bytes(std::span(*saved.content)));
}

/// What a generator of the program's own draws on, by its state: a device's is a seed and an
/// offset, the CPU's is more. The device is the one that memory lies on: a plan is for one.
c10::Device device_of_own(const trace::Saved& saved, const PlayerState::Devices& buffers) {
  constexpr std::size_t kOfDevice = 2 * sizeof(std::uint64_t);
  if (saved.content->size() != kOfDevice) return c10::kCPU;
  const auto on_device =
      std::ranges::find_if(buffers, [](const auto& buffer) { return !buffer.second.is_cpu(); });
  return on_device == buffers.end() ? c10::Device(c10::kCUDA) : on_device->second;
}

trace::Saved saved_state(const std::string& path, const at::Tensor& state) {
  return {std::string(kGenerator) + path, 0,
          trace::make_blob(state.const_data_ptr(), state.nbytes())};
}

}  // namespace

PlayerState::PlayerState(const std::vector<trace::Saved>& saved, const Devices& buffers) {
  for (const trace::Saved& entry : saved) {
    const auto buffer = entry.content ? buffers.find(entry.path) : buffers.end();
    const bool is_generator = entry.path.starts_with(kGenerator) && buffer == buffers.end();
    const std::string name = is_generator ? entry.path.substr(kGenerator.size()) : "";
    if (const std::string step = step_of(entry.path); !step.empty()) {
      runs_[step] = static_cast<std::uint64_t>(trace::number_of(entry.number));
    } else if (const std::string place = trace::place_of_kind(entry.path);
               !place.empty() && entry.content) {
      kinds_[place].assign(reinterpret_cast<const char*>(entry.content->data()),
                           entry.content->size());
    } else if (trace::is_number(entry.number)) {
      numbers_.emplace(entry.path, entry.number);
    } else if (is_generator) {
      const c10::Device device =
          is_default(name) ? device_of_default(name) : device_of_own(entry, buffers);
      // of a device that this process has not, no step draws
      if (!device.is_cpu() && !at::hasCUDA()) continue;
      at::Generator generator = new_generator(device);
      const at::Tensor state = bytes_as_tensor(entry, live::state_of(generator));
      if (!take_state(generator, state))
        throw Error(ErrorCode::kDataLoss, entry.path + ": no state of a generator");
      if (is_default(name)) {
        default_generators_[name] = state;
      } else {
        generators_.emplace(name, std::move(generator));
      }
    } else {
      const c10::Device device = buffer == buffers.end() ? c10::Device(c10::kCPU) : buffer->second;
      buffers_.emplace(entry.path, allocate_with(std::as_bytes(std::span(*entry.content)),
                                                 entry.address_mod_64, device));
    }
  }
  if (!default_generators_.contains(std::string(kDefault))) {
    const std::lock_guard lock(default_generator_mutex());
    default_generators_[std::string(kDefault)] =
        live::state_of(at::detail::getDefaultCPUGenerator());
  }
}

PlayerState::PlayerState(const PlayerState& other, std::shared_ptr<Publication> publication)
    : kinds_(other.kinds_),
      numbers_(other.numbers_),
      runs_(other.runs_),
      declared_by_(other.declared_by_),
      lookups_(other.lookups_),
      publication_(std::move(publication)) {
  for (const auto& [path, state] : other.default_generators_) {
    default_generators_[path] = copy_of(state);
  }
  for (const auto& [path, generator] : other.generators_) {
    generators_.emplace(path, generator.clone());
  }
  renew();
}

PlayerState::~PlayerState() {
  if (publication_) publication_->end(reading_);
}

void PlayerState::renew() {
  if (!publication_ || !publication_->renew(reading_)) return;
  const c10::Storage* last = nullptr;
  for (const auto& [path, published] : reading_.from->memory) {
    if (published.device().is_cpu()) {
      buffers_.insert_or_assign(path, published);
      continue;
    }
    c10::Storage& own = buffers_[path];
    if (!own) own = allocate_like(published);
    live::copy_bytes(own.mutable_data(), own.device(), published.data(), published.device(),
                     own.nbytes());
    last = &own;
  }
  // the version is not read any more when this returns
  if (last != nullptr) wait_for(*last);
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

std::vector<std::string> PlayerState::numbers_at(const std::string& place) const {
  std::vector<std::string> paths;
  for (const auto& [path, number] : numbers_) {
    const bool is_inside =
        path.size() > place.size() && (path[place.size()] == '[' || path[place.size()] == '.');
    if (path.starts_with(place) && (is_inside || path == place)) paths.push_back(path);
  }
  return paths;
}

std::string PlayerState::mismatch(const std::string& path, const trace::Value& value) const {
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
             : trace::words_of(value) + " is not an integer, or too large";
}

bool PlayerState::set_number(const std::string& path, const trace::Value& value) {
  const auto found = numbers_.find(path);
  if (found == numbers_.end()) return false;
  set_.insert(path);
  if (const auto lookup = lookups_.find(path); lookup != lookups_.end())
    lookup->second.is_set = true;
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
  if (is_default(path)) {
    at::Generator generator = default_generator(device_of_default(path));
    // the state that it has now, where none was saved
    if (!default_generators_.contains(path)) default_generators_[path] = live::state_of(generator);
    return generator;
  }
  const auto found = generators_.find(path);
  if (found == generators_.end()) {
    throw Error(ErrorCode::kUnsupported,
                "the trace holds no state of the generator \"" + path + "\"; save it with state");
  }
  return found->second;
}

std::vector<std::string> PlayerState::generators() const {
  std::vector<std::string> paths;
  for (const auto& [path, state] : default_generators_) paths.push_back(path);
  for (const auto& [path, generator] : generators_) paths.push_back(path);
  return paths;
}

at::Tensor PlayerState::generator_state(const std::string& path) const {
  return is_default(path) ? copy_of(default_generators_.at(path))
                          : live::state_of(generators_.at(path));
}

void PlayerState::set_generator_state(const std::string& path, const at::Tensor& state) {
  if (is_default(path)) {
    default_generators_.at(path) = copy_of(state);
  } else {
    live::set_state(generators_.at(path), state);
  }
}

bool PlayerState::takes_generator_state(const std::string& path, const at::Tensor& state) const {
  return take_state(like(path), state);
}

at::Generator PlayerState::like(const std::string& generator) const {
  return is_default(generator) ? new_generator(device_of_default(generator))
                               : generators_.at(generator).clone();
}

void PlayerState::seed(std::uint64_t value) {
  for (const std::string& path : generators()) {
    at::Generator seeded = like(path);
    seeded.set_current_seed(value);
    set_generator_state(path, live::state_of(seeded));
  }
}

std::uint64_t PlayerState::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [path, storage] : buffers_) bytes += storage.nbytes();
  return bytes;
}

void PlayerState::declare_lookup(const std::string& name, std::vector<std::string> under) {
  const auto [added, is_new] = lookups_.try_emplace(name, Lookup{std::move(under), {}});
  if (!is_new) return;
  const auto source_of = [this](const std::string& path) {
    const auto found = declared_by_.find(path);
    return found == declared_by_.end() ? nullptr : found->second;
  };
  for (const std::string& path : added->second.under) {
    const auto found = numbers_.find(path);
    const bool is_known = found != numbers_.end() && source_of(path) == source_of(name);
    added->second.at.push_back(is_known ? std::optional(found->second) : std::nullopt);
  }
}

std::string PlayerState::stale_under(const Lookup& lookup) const {
  for (std::size_t i = 0; i < lookup.under.size(); ++i) {
    const auto found = numbers_.find(lookup.under[i]);
    if (found == numbers_.end() || lookup.at[i] != found->second) return lookup.under[i];
  }
  return "";
}

std::string PlayerState::stale_under(const std::string& name) {
  Lookup& lookup = lookups_.at(name);
  if (std::exchange(lookup.is_set, false)) {
    for (std::size_t i = 0; i < lookup.under.size(); ++i) {
      if (const trace::Value* now = number(lookup.under[i])) lookup.at[i] = *now;
    }
  }
  return stale_under(std::as_const(lookup));
}

std::vector<trace::Saved> PlayerState::save() const {
  std::vector<trace::Saved> saved;
  for (const auto& [path, storage] : buffers_) {
    const auto remainder = reinterpret_cast<std::uintptr_t>(storage.data()) % 64;
    saved.push_back({path, static_cast<std::uint8_t>(storage.nbytes() == 0 ? 0 : remainder),
                     live::blob_of(*storage.unsafeGetStorageImpl())});
  }
  for (const auto& [path, number] : numbers_) {
    const auto lookup = lookups_.find(path);
    const bool is_right =
        lookup == lookups_.end() || lookup->second.is_set || stale_under(lookup->second).empty();
    if (is_right) saved.push_back({path, 0, nullptr, number});
  }
  for (const auto& [step, runs] : runs_) {
    if (runs == 0) continue;
    saved.push_back({std::string(kRuns) + step + "]", 0, nullptr,
                     trace::Value{static_cast<std::int64_t>(runs)}});
  }
  for (const auto& [place, kind] : kinds_) saved.push_back(trace::saved_kind(place, kind));
  for (const auto& [path, state] : default_generators_) saved.push_back(saved_state(path, state));
  for (const auto& [path, generator] : generators_) {
    saved.push_back(saved_state(path, live::state_of(generator)));
  }
  return saved;
}

PlayerState::DefaultGenerator::DefaultGenerator(PlayerState& state)
    : lock_(default_generator_mutex()), state_(state), others_(state.default_generators_) {
  exchange();
}

PlayerState::DefaultGenerator::~DefaultGenerator() {
  exchange();
  state_.default_generators_ = std::move(others_);
}

void PlayerState::DefaultGenerator::exchange() {
  for (auto& [path, other] : others_) {
    at::Generator generator = default_generator(device_of_default(path));
    at::Tensor in_use = live::state_of(generator);
    live::set_state(generator, other);
    other = std::move(in_use);
  }
}

}  // namespace steptape::replayer

namespace steptape {
namespace replayer {
namespace {

const SnapshotOptions& checked(const SnapshotOptions& options) {
  if (options.folder.empty() || options.keep == 0 || options.every_seconds < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "snapshots need a folder, at least one to keep, and no negative time");
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) {
    throw Error(ErrorCode::kIo,
                "cannot make the folder " + options.folder + ": " + error.message());
  }
  return options;
}

}  // namespace

Snapshots::Snapshots(const SnapshotOptions& options, std::uint64_t runs)
    : options_(checked(options)), folder_(options_.folder) {
  folder_.take();
  for (const std::uint64_t number : folder_.numbers()) {
    // a damaged one is in nobody's way
    if (number <= runs || !storage::check(folder_.path_of(number)).whole()) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                path_of(number) + " is of a training that went further than this one (" +
                    std::to_string(runs) +
                    " steps): go on from newest_snapshot(), or choose another folder");
  }
}

bool Snapshots::is_due_after_step() {
  ++steps_;
  if (options_.every_steps != 0 && steps_ >= options_.every_steps) return true;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - last_;
  return options_.every_seconds > 0 && passed.count() >= options_.every_seconds;
}

void Snapshots::written(std::uint64_t runs) {
  steps_ = 0;
  last_ = std::chrono::steady_clock::now();
  folder_.keep(options_.keep, runs);
}

}  // namespace replayer

std::string newest_snapshot(const std::string& folder) {
  const storage::SnapshotFolder snapshots(folder);
  const std::vector<std::uint64_t> numbers = snapshots.numbers();
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    const std::string path = snapshots.path_of(*number).string();
    if (storage::check(path).whole()) return path;
  }
  return "";
}

}  // namespace steptape
