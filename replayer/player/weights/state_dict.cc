#include "replayer/player/weights/state_dict.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>

#include "live/tensors.h"
#include "replayer/player/weights/pickle_reader.h"
#include "replayer/player/weights/pickle_writer.h"
#include "replayer/player/weights/zip_directory.h"
#include "replayer/runtime/tensor_on.h"
#include "steptape/error.h"

namespace steptape::replayer {
namespace {

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

/// A tensor without dimensions.
at::Tensor number_tensor(const auto& number, trace::DType dtype) {
  const c10::Storage memory = allocate(sizeof(number), 0);
  std::memcpy(memory.mutable_data(), &number, sizeof(number));
  return tensor_on(memory, {.buffer = 0, .dtype = dtype, .sizes = {}, .strides = {}});
}

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
      tensors.push_back({entry.name, number_tensor(*flag, trace::DType::kBool)});
    } else if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      tensors.push_back({entry.name, number_tensor(*integer, trace::DType::kInt64)});
    } else if (const auto* real = std::get_if<double>(&entry.value)) {
      tensors.push_back({entry.name, number_tensor(*real, trace::DType::kFloat64)});
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
