#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "tests/trace/text/text_parse.h"
#include "trace/text/text.h"

/// Traces that several tests start from.
namespace steptape::test {

inline std::string golden_text(const std::string& name) {
  std::ifstream file(std::string(STEPTAPE_SOURCE_DIR) + "/tests/trace/golden/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A step of a linear layer with SGD: every kind of thing that a trace may hold, once.
inline trace::Trace train_trace() { return trace::parse(golden_text("train.txt")); }
/// Host numbers of every kind and where they enter.
inline trace::Trace numbers_trace() { return trace::parse(golden_text("numbers.txt")); }
/// What became of a hundred calls.
inline trace::Account account() {
  return {3,
          1,
          2,
          60,
          34,
          {{false, "shape", "shape: x.size(0): 64 → 17 (never held)", "", "", "", "pad", 12},
           {true, "host_read", "item() reads t2", "aten::item, model.fc1", "/home/me/train.py:41",
            "if loss.item() > 3:", "return the loss", 22}}};
}
inline trace::Recording train_recording() { return train_trace().steps[0].recordings[0]; }

}  // namespace steptape::test
