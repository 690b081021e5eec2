#include <cstdlib>
#include <iostream>

#include "tests/fuzz/target.h"

namespace steptape::fuzz {

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << "this does not hold: " << what << std::endl;
  std::abort();
}

}  // namespace steptape::fuzz
