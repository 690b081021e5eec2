#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "storage/files/file_system.h"

namespace steptape::storage {

enum class Lasting { kOnce, kForever };

/// One folder in memory: what processes see of it, and what would be there after a loss of power.
/// Calls are counted from 0, whatever they are, and can be made to fail.
class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem() = default;
  MemoryFileSystem(const MemoryFileSystem& other);

  /// A file that is on the disk already.
  void put(const std::filesystem::path& path, const std::string& bytes);
  bool holds(const std::filesystem::path& path) const { return names_.contains(path); }
  /// What processes see; may be changed.
  std::string& bytes_at(const std::filesystem::path& path) { return nodes_[names_.at(path)].bytes; }
  std::vector<std::string> names() const;

  /// Call number `call`, and with kForever each one after it, does nothing but give `error`.
  void fail(std::size_t call, int error, Lasting lasting);
  /// Reads and writes give and take at most so many bytes.
  void transfer_at_most(std::size_t bytes) { most_ = bytes; }
  /// Syncs do nothing from now on and say that they did.
  void lie_about_syncs() { syncs_ = false; }

  std::size_t calls() const { return calls_; }
  std::size_t open_files() const { return open_.size(); }
  std::uint64_t bytes_read() const { return bytes_read_; }

  /// Of what was not synced each piece is there, is not, or is torn, in any order; then all is on
  /// the disk, and nothing is open or fails.
  void lose_power(std::mt19937_64& random);

 private:
  struct Write {
    std::uint64_t offset;
    std::string bytes;
    bool is_cut = false;  ///< nothing was written: the file ended at `offset` from there on
  };
  struct Node {
    std::string bytes;
    std::string synced;
    std::vector<Write> unsynced;
    std::uint32_t permissions = 0666;
  };
  struct NameChange {
    std::string name;
    std::optional<std::size_t> node;
    std::string gone;  ///< the name that a rename took it from, at once
  };
  struct Fault {
    std::size_t call = SIZE_MAX;
    int error = 0;
    Lasting lasting = Lasting::kOnce;
  };
  class Call;

  int open_once(const std::filesystem::path& path, Access access,
                std::uint32_t permissions) override;
  int close_once(int descriptor) noexcept override;
  std::int64_t write_once(int descriptor, ByteView bytes) override;
  std::int64_t read_once(int descriptor, std::uint64_t offset, std::span<std::byte> out) override;
  int sync_once(int descriptor) override;
  int set_permissions_once(int descriptor, std::uint32_t permissions) override;
  int status_of_once(int descriptor, Status& status) override;
  int status_at_once(const std::filesystem::path& path, Status& status) override;
  int read_link_once(const std::filesystem::path& path, std::filesystem::path& target) override;
  int rename_once(const std::filesystem::path& from, const std::filesystem::path& to) override;
  int unlink_once(const std::filesystem::path& path) noexcept override;
  int truncate_once(int descriptor, std::uint64_t bytes) override;
  int lock_once(int descriptor) override;

  void change_name(const std::string& name, std::optional<std::size_t> node,
                   const std::string& gone = {});
  static void settle(Node& node, std::mt19937_64& random);

  mutable std::mutex mutex_;
  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> names_;
  std::map<std::string, std::size_t> synced_names_;
  std::vector<NameChange> unsynced_names_;
  std::map<int, std::optional<std::size_t>> open_;  ///< none: the folder
  std::map<std::size_t, int> locks_;                ///< descriptor by node
  int next_descriptor_ = 3;
  Fault fault_;
  std::size_t most_ = SIZE_MAX;
  bool syncs_ = true;
  std::size_t calls_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace steptape::storage
