#include "tests/simulated_cuda/work.h"

#include <map>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace steptape::tests::simulated {
namespace {

struct Functions {
  std::mutex mutex;
  std::map<std::pair<std::string, std::vector<std::size_t>>, std::unique_ptr<Function>> made;
  std::unordered_set<const void*> addresses;
};
Functions& functions() {
  static auto& functions = *new Functions;
  return functions;
}

}  // namespace

const Function* function_of(const std::string& name, const std::vector<std::size_t>& sizes) {
  const std::lock_guard lock(functions().mutex);
  auto& function = functions().made[{name, sizes}];
  if (!function) {
    function = std::make_unique<Function>(Function{name, sizes, {}});
    std::size_t end = 0;
    for (const std::size_t size : sizes) {
      function->offsets.push_back(end);
      end += (size + 7) / 8 * 8;
    }
    functions().addresses.insert(function.get());
  }
  return function.get();
}

const Function* find_function(const void* address) {
  const std::lock_guard lock(functions().mutex);
  return functions().addresses.count(address) ? static_cast<const Function*>(address) : nullptr;
}

}  // namespace steptape::tests::simulated
