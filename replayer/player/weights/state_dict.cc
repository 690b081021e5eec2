#include "replayer/player/weights/state_dict.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "live/tensors.h"
#include "replayer/player/weights/pickle.h"
#include "replayer/runtime/tensor_on.h"
#include "steptape/error.h"
#include "storage/files/input_file.h"
#include "storage/files/wire.h"

namespace steptape::replayer {
namespace {

// APPNOTE.TXT, the .ZIP File Format Specification of PKWARE, sections 4.3.12 to 4.3.16 and 4.5.3.

constexpr std::uint32_t kIn64 = 0xffffffff;  ///< the 64-bit field has it

[[noreturn]] void damaged(const char* what) {
  throw Error(ErrorCode::kDataLoss, std::string("it is a damaged archive: ") + what);
}

/// Bytes of the file whose fields are read with their bounds.
class Fields {
 public:
  explicit Fields(std::string bytes) : bytes_(std::move(bytes)) {}
  template <typename Number>
  Number at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Number))
      damaged("its directory ends too early");
    return storage::get<Number>(storage::bytes_of(bytes_), offset);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct Directory {
  std::uint64_t entries = 0, bytes = 0, offset = 0;
};

Fields part_of(const storage::InputFile& file, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > file.bytes() || file.bytes() - offset < bytes) damaged("its directory lies outside");
  return Fields(file.read(offset, bytes));
}

Directory directory_of(const storage::InputFile& file) {
  constexpr std::uint64_t kEnd = 22, kLongestComment = 65535, kLocator = 20, kEnd64 = 56;
  const std::uint64_t tail = std::min(file.bytes(), kEnd + kLongestComment);
  const Fields last = part_of(file, file.bytes() - tail, tail);
  const std::size_t found = last.bytes().rfind("PK\x05\x06");
  if (found == std::string::npos) damaged("it has no directory");
  Directory directory{last.at<std::uint16_t>(found + 10), last.at<std::uint32_t>(found + 12),
                      last.at<std::uint32_t>(found + 16)};
  const std::uint64_t end = file.bytes() - tail + found;
  if (end < kLocator) return directory;
  const Fields locator = part_of(file, end - kLocator, kLocator);
  if (locator.at<std::uint32_t>(0) != 0x07064b50) return directory;
  const Fields end64 = part_of(file, locator.at<std::uint64_t>(8), kEnd64);
  if (end64.at<std::uint32_t>(0) != 0x06064b50) damaged("its directory is not where it says");
  return {end64.at<std::uint64_t>(32), end64.at<std::uint64_t>(40), end64.at<std::uint64_t>(48)};
}

/// The uncompressed size, which comes first in the extra field where the entry has no room for it.
std::uint64_t size_in_extra(const Fields& entries, std::uint64_t first, std::uint64_t bytes) {
  for (std::uint64_t at = first; at + 4 <= first + bytes;) {
    const auto kind = entries.at<std::uint16_t>(at);
    const auto length = entries.at<std::uint16_t>(at + 2);
    if (kind == 1) return entries.at<std::uint64_t>(at + 4);
    at += 4 + std::uint64_t{length};
  }
  damaged("an entry has no size");
}

/// Looks at the directory of a zip archive before LibTorch's reader does, which unpacks some
/// records at once, whatever their size. Throws Error: (data_loss) when there is none, or when its
/// entries hold more bytes than the file; (unsupported) when one is compressed, which torch.save
/// does not.
void require_stored(const storage::InputFile& file) {
  constexpr std::uint64_t kHeader = 46;
  const Directory directory = directory_of(file);
  const Fields entries = part_of(file, directory.offset, directory.bytes);
  std::uint64_t left = file.bytes();
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (entries.at<std::uint32_t>(at) != 0x02014b50) damaged("an entry is none");
    if (entries.at<std::uint16_t>(at + 10) != 0)
      throw Error(ErrorCode::kUnsupported,
                  "a record of it is compressed, which torch.save does not");
    const auto name = entries.at<std::uint16_t>(at + 28);
    const auto extra = entries.at<std::uint16_t>(at + 30);
    const auto comment = entries.at<std::uint16_t>(at + 32);
    std::uint64_t size = entries.at<std::uint32_t>(at + 24);
    if (size == kIn64) size = size_in_extra(entries, at + kHeader + name, extra);
    if (size > left) damaged("its records hold more bytes than the file");
    left -= size;
    at += kHeader + name + extra + comment;
  }
}

/// What LibTorch's zip reader and writer call is called by C code, through which no exception may
/// go: the first one waits here.
class Problem {
 public:
  template <typename Call>
  void guard(Call call) noexcept {
    try {
      if (!first_) call();
    } catch (...) {
      first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

class FileReader final : public caffe2::serialize::ReadAdapterInterface {
 public:
  FileReader(const storage::InputFile& file, Problem& problem) : file_(file), problem_(problem) {}
  std::size_t size() const override { return file_.bytes(); }
  std::size_t read(std::uint64_t position, void* buffer, std::size_t count,
                   const char* /*what*/) const override {
    std::size_t done = 0;
    problem_.guard([&] {
      if (position >= file_.bytes()) return;
      const std::string bytes =
          file_.read(position, std::min<std::uint64_t>(count, file_.bytes() - position));
      std::memcpy(buffer, bytes.data(), bytes.size());
      done = bytes.size();
    });
    return done;
  }

 private:
  const storage::InputFile& file_;
  Problem& problem_;
};

/// The records of an archive. torch.save compresses none, so that all together are no larger than
/// the file.
class Archive {
 public:
  Archive(const storage::InputFile& file, Problem& problem)
      : left_(file.bytes()), reader_(std::make_shared<FileReader>(file, problem)) {}

  bool has(const std::string& name) { return reader_.hasRecord(name); }

  c10::Storage read(const std::string& name) {
    const std::size_t bytes = reader_.getRecordSize(name);
    if (bytes > left_) {
      throw Error(ErrorCode::kDataLoss, "its records hold more bytes than the file");
    }
    left_ -= bytes;
    const c10::Storage memory = allocate(bytes, 0);
    if (bytes > 0) reader_.getRecord(name, memory.mutable_data(), bytes);
    return memory;
  }

 private:
  std::uint64_t left_;
  caffe2::serialize::PyTorchStreamReader reader_;
};

constexpr std::string_view kOrder = "little";

std::vector<NamedTensor> tensors_of(Archive& archive) {
  if (!archive.has("data.pkl")) {
    throw Error(ErrorCode::kUnsupported, "it is a zip archive that torch.save did not write");
  }
  if (archive.has("byteorder")) {
    const c10::Storage order = archive.read("byteorder");
    if (std::string_view(static_cast<const char*>(order.data()), order.nbytes()) != kOrder)
      throw Error(ErrorCode::kUnsupported, "its bytes are in another order than this machine's");
  }
  const c10::Storage pickle = archive.read("data.pkl");
  std::map<std::string, c10::Storage> records;
  std::vector<NamedTensor> tensors;
  for (const PickledEntry& entry :
       read_pickle({static_cast<const char*>(pickle.data()), pickle.nbytes()})) {
    if (const auto* flag = std::get_if<bool>(&entry.value)) {
      tensors.push_back({entry.name, tensor_of_number(*flag, trace::DType::kBool)});
    } else if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      tensors.push_back({entry.name, tensor_of_number(*integer, trace::DType::kInt64)});
    } else if (const auto* real = std::get_if<double>(&entry.value)) {
      tensors.push_back({entry.name, tensor_of_number(*real, trace::DType::kFloat64)});
    } else {
      const auto& tensor = std::get<PickledTensor>(entry.value);
      auto found = records.find(tensor.storage);
      if (found == records.end()) {
        found = records.emplace(tensor.storage, archive.read("data/" + tensor.storage)).first;
      }
      if (found->second.nbytes() < static_cast<std::uint64_t>(tensor.bytes)) {
        throw Error(ErrorCode::kDataLoss, entry.name + " has less bytes than its dict says");
      }
      tensors.push_back({entry.name, tensor_on(found->second, tensor.geometry)});
    }
  }
  return tensors;
}

}  // namespace

bool begins_like_a_state_dict(const storage::InputFile& file) {
  constexpr std::string_view kZip = "PK\x03\x04";
  return file.bytes() >= kZip.size() && file.read(0, kZip.size()) == kZip;
}

void write_state_dict(std::span<const NamedTensor> tensors, storage::Output& out) {
  std::vector<PickledEntry> entries;
  for (const NamedTensor& entry : tensors) {
    PickledTensor tensor{std::to_string(entries.size()),
                         static_cast<std::int64_t>(entry.tensor.nbytes()),
                         live::geometry_of(entry.tensor, 0)};
    tensor.geometry.offset = 0;
    entries.push_back({entry.name, std::move(tensor)});
  }
  Problem problem;
  // it is told that all went well: it would write the archive's end in its destructor, and throw
  // there
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t count) {
    problem.guard([&] { out.append({static_cast<const std::byte*>(bytes), count}); });
    return count;
  });
  const std::string pickle = write_pickle(entries);
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", kOrder.data(), kOrder.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(tensors[i]);
    writer.writeRecord(fmt::format("data/{}", i), bytes.data(), bytes.size());
  }
  writer.writeEndOfFile();
  problem.rethrow();
}

std::vector<NamedTensor> read_state_dict(const storage::InputFile& file) {
  Problem problem;
  try {
    require_stored(file);
    Archive archive(file, problem);
    return tensors_of(archive);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file.path().string(), error.what()));
  } catch (const c10::Error& error) {
    problem.rethrow();
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{} is a damaged archive: {}", file.path().string(),
                            error.what_without_backtrace()));
  }
}

}  // namespace steptape::replayer
