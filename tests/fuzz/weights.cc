#include "replayer/player/weights/pickle.h"
#include "replayer/player/weights/weights_file.h"
#include "tests/fuzz/bounded.h"

/// A file of weights of any bytes, and a pickle of any bytes, is read or refused within bounded
/// work. What was read survives being written again.
namespace steptape::fuzz {
namespace {

using replayer::NamedTensor;

/// A value, a name and a tensor are words; a byte of a pickle makes one of them.
constexpr Bound kPickle = {0, 400, 0};
/// Of JSON, a byte makes a value; of archives, LibTorch reads the directory more than once.
constexpr Bound kFile = {8, 400, 0};

void look_at(const std::string& bytes) {
  storage::MemoryFileSystem files;
  bounded(files, bytes.size(), "read_pickle", kPickle,
          [&bytes] { return replayer::read_pickle(bytes); });
  files.put("/weights.pt", bytes);
  const auto tensors = bounded(files, bytes.size(), "read_weights", kFile,
                               [&files] { return replayer::read_weights("/weights.pt", files); });
  if (!tensors) return;
  replayer::write_weights(*tensors, "/again.pt", files);
  const std::vector<NamedTensor> again = replayer::read_weights("/again.pt", files);
  require(again.size() == tensors->size(), "what was read survives being written");
  for (std::size_t i = 0; i < again.size(); ++i) {
    require(again[i].name == (*tensors)[i].name &&
                again[i].tensor.sizes() == (*tensors)[i].tensor.sizes() &&
                again[i].tensor.scalar_type() == (*tensors)[i].tensor.scalar_type(),
            "what was read survives being written");
  }
}

}  // namespace
}  // namespace steptape::fuzz

/// LibTorch's PyTorchStreamReader throws of an archive's damaged directory in its constructor, and
/// does not end the reader that it began: some hundred bytes for each such file.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's name
extern "C" const char* __lsan_default_suppressions() { return "leak:mz_zip_reader_init\n"; }

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  steptape::fuzz::look_at({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
