#include "replayer/runtime/cuda/plan/foreach_operators.h"

#include <utility>

namespace steptape::replayer::cuda {
namespace {

using enum ForeachArgument::Kind;

class Table {
 public:
  Table() {
    for (const char* suffix : {"", "_"}) {
      for (const char* name : {"add", "sub"}) {
        put(name, suffix, ".Tensor", "List", {{kEach, 0}, {kEach, 1}, {kNumber, 2}});
      }
      for (const char* name : {"mul", "div"}) {
        put(name, suffix, ".Tensor", "List", {{kEach, 0}, {kEach, 1}});
        put(name, suffix, ".Tensor", "Tensor", {{kEach, 0}, {kShared, 1}});
      }
      // numbers of the host are tensors where Python calls, and numbers where C++ does
      for (const char* overload : {".Tensor", ".Scalar"}) {
        for (const char* name : {"add", "sub", "mul", "div"}) {
          put(name, suffix, overload, "Scalar", {{kEach, 0}, {kNumber, 1}});
        }
        // ATen multiplies by the reciprocal of such a divisor (BinaryDivTrueKernel.cu)
        put("div", suffix, overload, "Scalar", {{kEach, 0}, {kReciprocal, 1}}, "mul");
      }
      for (const char* name : {"addcmul", "addcdiv"}) {
        put(name, suffix, "", "Scalar", {{kEach, 0}, {kEach, 1}, {kEach, 2}, {kNumber, 3}});
      }
      put("lerp", suffix, ".Scalar", "Scalar", {{kEach, 0}, {kEach, 1}, {kNumber, 2}});
      for (const char* name : {"abs", "exp", "neg", "reciprocal", "rsqrt", "sign", "sqrt"}) {
        put(name, suffix, "", "", {{kEach, 0}});
      }
    }
    put("maximum", "", "", "List", {{kEach, 0}, {kEach, 1}});
    put("minimum", "", "", "List", {{kEach, 0}, {kEach, 1}});
    rows_.push_back({"aten::maximum.out",
                     "aten::_foreach_maximum_",
                     "List",
                     {{kEach, 0}, {kEach, 1}},
                     /*out=*/2});
    put("zero", "_", "", "", {{kEach, 0}});
    put("copy", "_", "", "", {{kEach, 0}, {kEach, 1}});
  }

  const std::vector<ForeachOperator>& rows() const { return rows_; }

 private:
  void put(const std::string& name, const std::string& suffix, const std::string& overload,
           const std::string& foreach_overload, std::vector<ForeachArgument> arguments,
           const std::string& foreach_name = "") {
    const std::string& stem = foreach_name.empty() ? name : foreach_name;
    rows_.push_back({"aten::" + name + suffix + overload, "aten::_foreach_" + stem + suffix,
                     foreach_overload, std::move(arguments)});
  }

  std::vector<ForeachOperator> rows_;
};

}  // namespace

std::vector<const ForeachOperator*> foreach_operators_of(std::string_view op) {
  static const Table table;
  std::vector<const ForeachOperator*> found;
  for (const ForeachOperator& row : table.rows()) {
    if (row.op == op) found.push_back(&row);
  }
  return found;
}

}  // namespace steptape::replayer::cuda
