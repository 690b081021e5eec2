#include "replayer/player/weights/weights_file.h"

#include "replayer/player/weights/safetensors.h"
#include "replayer/player/weights/state_dict.h"
#include "storage/files/atomic_file.h"

namespace steptape::replayer {

void write_weights(std::span<const NamedTensor> tensors, const std::filesystem::path& path,
                   storage::FileSystem& files) {
  std::vector<NamedTensor> contiguous;
  for (const NamedTensor& entry : tensors) {
    contiguous.push_back(
        {entry.name, entry.tensor.detach().resolve_conj().resolve_neg().contiguous()});
  }
  storage::AtomicFile file(path, files, storage::Replaces::kOtherFiles);
  if (path.extension() == ".safetensors") {
    write_safetensors(contiguous, file);
  } else {
    write_state_dict(contiguous, file);
  }
  file.commit();
}

std::vector<NamedTensor> read_weights(const std::filesystem::path& path,
                                      storage::FileSystem& files) {
  const storage::InputFile file(path, files);
  return begins_like_a_state_dict(file) ? read_state_dict(file) : read_safetensors(file);
}

}  // namespace steptape::replayer
