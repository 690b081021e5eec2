#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trace/model.h"

/// Valid recordings that no program made: a chain of modules, called forward and backward, and an
/// optimizer without a module. And single edits of them, as an oracle for comparisons.
namespace steptape::test {

struct MadeUp {
  std::uint64_t seed = 0;
  int modules = 6;
  int ops_a_module = 5;
  std::int64_t batch = 32;
  /// A quarter of the ops of a module give views of rows or columns, and another writes its
  /// argument in place.
  bool has_aliases = false;
};

trace::Recording make_up(const MadeUp& wanted);

/// Puts `op` before op `at`, and counts the module calls' first ops anew.
void insert_op(trace::Recording& recording, trace::Index at, trace::Op op);
void remove_op(trace::Recording& recording, trace::Index at);
/// Moves op `from` so that it becomes op `to`.
void move_op(trace::Recording& recording, trace::Index from, trace::Index to);
/// An operator of this name with the overload and schema of `like`.
trace::Index add_operator(trace::Recording& recording, const std::string& name, trace::Index like);
/// A copy of a tensor that may be changed.
trace::TensorId copy_tensor(trace::Recording& recording, trace::TensorId tensor);
/// The first tensor that is an input of the op itself, or kNoTensor.
trace::TensorRef* first_tensor(trace::Op& op);
/// The last real among the inputs of the op, or null.
trace::Real* last_real(trace::Op& op);
/// A new module below "model" that takes what op `at` gave in so many ops before op `at` + 1.
void insert_module(trace::Recording& recording, trace::Index at, int ops);
/// How far an op may go up or down (negative) without passing one that shares a buffer with it.
std::pair<int, int> way_of(const trace::Recording& recording, trace::Index op);

}  // namespace steptape::test
