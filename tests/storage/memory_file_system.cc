#include "tests/storage/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/storage/allocations.h"

namespace steptape::storage {
namespace {

constexpr std::size_t kSectorBytes = 512;

void overwrite(std::string& bytes, std::uint64_t offset, std::string_view with) {
  bytes.resize(std::max(bytes.size(), offset + with.size()));
  bytes.replace(offset, with.size(), with);
}

}  // namespace

/// What the operating system does is nobody else's turn, and none of the program's allocations.
class MemoryFileSystem::Call {
 public:
  explicit Call(MemoryFileSystem& files) : lock_(files.mutex_) {
    const Fault& fault = files.fault_;
    const std::size_t number = files.calls_++;
    const bool fails =
        number == fault.call || (number > fault.call && fault.lasting == Lasting::kForever);
    error_ = fails ? -fault.error : 0;
  }
  int error() const { return error_; }

 private:
  AllocationsSucceed succeed_;
  std::scoped_lock<std::mutex> lock_;
  int error_ = 0;
};

MemoryFileSystem::MemoryFileSystem(const MemoryFileSystem& other)
    : nodes_(other.nodes_),
      names_(other.names_),
      synced_names_(other.synced_names_),
      unsynced_names_(other.unsynced_names_),
      open_(other.open_),
      locks_(other.locks_),
      next_descriptor_(other.next_descriptor_),
      fault_(other.fault_),
      most_(other.most_),
      syncs_(other.syncs_),
      calls_(other.calls_),
      bytes_read_(other.bytes_read_) {}

void MemoryFileSystem::put(const std::filesystem::path& path, const std::string& bytes) {
  names_[path] = synced_names_[path] = nodes_.size();
  nodes_.push_back({bytes, bytes, {}});
}

std::vector<std::string> MemoryFileSystem::names() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : names_) names.push_back(name);
  return names;
}

void MemoryFileSystem::fail(std::size_t call, int error, Lasting lasting) {
  fault_ = {call, error, lasting};
}

int MemoryFileSystem::open_once(const std::filesystem::path& path, Access access,
                                std::uint32_t permissions) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  std::optional<std::size_t> node;
  if (access != Access::kFolder) {
    const auto known = names_.find(path);
    if (access == Access::kRead && known == names_.end()) return -ENOENT;
    if (access == Access::kCreate && known != names_.end()) return -EEXIST;
    if (known == names_.end()) {
      nodes_.push_back({{}, {}, {}, permissions});
      change_name(path, nodes_.size() - 1);
    }
    node = names_.at(path);
  }
  open_[next_descriptor_] = node;
  return next_descriptor_++;
}

int MemoryFileSystem::close_once(int descriptor) noexcept {
  const Call call(*this);
  if (open_.erase(descriptor) == 0) return -EBADF;
  std::erase_if(locks_, [descriptor](const auto& lock) { return lock.second == descriptor; });
  return call.error();
}

std::int64_t MemoryFileSystem::write_once(int descriptor, ByteView bytes) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  Node& node = nodes_[open_.at(descriptor).value()];
  const std::size_t count = std::min(bytes.size(), most_);
  node.unsynced.push_back(
      {node.bytes.size(), {reinterpret_cast<const char*>(bytes.data()), count}, false});
  node.bytes += node.unsynced.back().bytes;
  return static_cast<std::int64_t>(count);
}

std::int64_t MemoryFileSystem::read_once(int descriptor, std::uint64_t offset,
                                         std::span<std::byte> out) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  const std::string& bytes = nodes_[open_.at(descriptor).value()].bytes;
  if (offset >= bytes.size()) return 0;
  const std::size_t count = std::min({out.size(), bytes.size() - offset, most_});
  std::memcpy(out.data(), bytes.data() + offset, count);
  bytes_read_ += count;
  return static_cast<std::int64_t>(count);
}

int MemoryFileSystem::sync_once(int descriptor) {
  const Call call(*this);
  if (call.error() != 0 || !syncs_) return call.error();
  if (const std::optional<std::size_t> file = open_.at(descriptor)) {
    Node& node = nodes_[*file];
    node.synced = node.bytes;
    node.unsynced.clear();
  } else {
    synced_names_ = names_;
    unsynced_names_.clear();
  }
  return 0;
}

int MemoryFileSystem::set_permissions_once(int descriptor, std::uint32_t permissions) {
  const Call call(*this);
  if (call.error() == 0) nodes_[open_.at(descriptor).value()].permissions = permissions;
  return call.error();
}

int MemoryFileSystem::status_of_once(int descriptor, Status& status) {
  const Call call(*this);
  const std::size_t number = open_.at(descriptor).value();
  status = {true, nodes_[number].bytes.size(), nodes_[number].permissions, 1, number};
  return call.error();
}

int MemoryFileSystem::status_at_once(const std::filesystem::path& path, Status& status) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  const auto known = names_.find(path);
  if (known == names_.end()) return -ENOENT;
  const Node& node = nodes_[known->second];
  status = {true, node.bytes.size(), node.permissions, 1, known->second};
  return 0;
}

int MemoryFileSystem::read_link_once(const std::filesystem::path& path, std::filesystem::path&) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  return names_.contains(path) ? -EINVAL : -ENOENT;
}

int MemoryFileSystem::rename_once(const std::filesystem::path& from,
                                  const std::filesystem::path& to) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  const auto known = names_.find(from);
  if (known == names_.end()) return -ENOENT;
  change_name(to, known->second, from);
  return 0;
}

int MemoryFileSystem::unlink_once(const std::filesystem::path& path) noexcept {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  if (!names_.contains(path)) return -ENOENT;
  change_name(path, std::nullopt);
  return 0;
}

int MemoryFileSystem::truncate_once(int descriptor, std::uint64_t bytes) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  Node& node = nodes_[open_.at(descriptor).value()];
  node.unsynced.push_back({bytes, {}, true});
  node.bytes.resize(bytes);
  return 0;
}

int MemoryFileSystem::lock_once(int descriptor) {
  const Call call(*this);
  if (call.error() != 0) return call.error();
  const auto [lock, is_new] = locks_.emplace(open_.at(descriptor).value(), descriptor);
  return is_new || lock->second == descriptor ? 0 : -EWOULDBLOCK;
}

void MemoryFileSystem::change_name(const std::string& name, std::optional<std::size_t> node,
                                   const std::string& gone) {
  unsynced_names_.push_back({name, node, gone});
  names_.erase(gone);
  if (node) {
    names_[name] = *node;
  } else {
    names_.erase(name);
  }
}

void MemoryFileSystem::settle(Node& node, std::mt19937_64& random) {
  std::ranges::shuffle(node.unsynced, random);
  for (const Write& write : node.unsynced) {
    const auto fate = random() % 3;
    if (write.is_cut && fate != 0) {
      node.synced.resize(std::min<std::size_t>(node.synced.size(), write.offset));
    }
    for (std::size_t at = 0; at < write.bytes.size() && fate != 0; at += kSectorBytes) {
      const bool torn = fate == 1 && random() % 2 == 0;
      if (!torn) overwrite(node.synced, write.offset + at, write.bytes.substr(at, kSectorBytes));
    }
  }
  node.unsynced.clear();
  node.bytes = node.synced;
}

void MemoryFileSystem::lose_power(std::mt19937_64& random) {
  for (Node& node : nodes_) settle(node, random);
  std::ranges::shuffle(unsynced_names_, random);
  for (const NameChange& change : unsynced_names_) {
    if (random() % 2 == 0) continue;
    synced_names_.erase(change.gone);
    if (change.node) {
      synced_names_[change.name] = *change.node;
    } else {
      synced_names_.erase(change.name);
    }
  }
  unsynced_names_.clear();
  names_ = synced_names_;
  open_.clear();
  locks_.clear();
  fault_ = {};
}

}  // namespace steptape::storage
