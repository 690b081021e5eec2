#pragma once

#include "storage/files/input_file.h"

namespace steptape::replayer {

/// Looks at the directory of a zip archive before LibTorch's reader does, which unpacks some
/// records at once, whatever their size. Throws Error: (data_loss) when there is none, or when its
/// entries hold more bytes than the file; (unsupported) when one is compressed, which torch.save
/// does not.
void require_stored(const storage::InputFile& file);

}  // namespace steptape::replayer
