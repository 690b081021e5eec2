#include "session/observe/say_once.h"

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <set>

#include "trace/text/text_parts.h"

namespace steptape::session {

void say_once(const std::string& what) {
  // a program with that many problems has said enough
  constexpr std::size_t kMostSaid = 64;
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;  // sessions may end after static objects
  const std::lock_guard<std::mutex> lock(mutex);
  if (said->size() >= kMostSaid || !said->insert(what).second) return;
  const std::string line = "steptape: " + trace::on_one_line(what) + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace steptape::session
