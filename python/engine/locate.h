#pragma once

#include <string>
#include <vector>

namespace steptape::python {

/// Frames of files below these folders are not the program's own: torch, this package.
void set_foreign_folders(std::vector<std::string> folders);

/// The line of the program's own code that runs now, "train.py:41"; where only other packages are
/// on the stack, theirs. Takes the GIL. Empty in a thread without Python frames.
std::string locate();

}  // namespace steptape::python
