#pragma once

#include <string>
#include <string_view>

namespace steptape::trace {

/// `word` as one word of a POSIX shell's command line: in single quotes where it has to be.
std::string shell_word(std::string_view word);

}  // namespace steptape::trace
