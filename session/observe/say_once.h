#pragma once

#include <string>

namespace steptape::session {

/// Writes "steptape: <what>" to stderr, unless the process has said the same before. Any thread.
void say_once(const std::string& what);

}  // namespace steptape::session
