#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.h"
#include "trace/value.h"

/// Values of a trace as Python writes them. Whatever a name holds, it becomes no code.
namespace steptape::tools {

/// The Python statements that switch torch to what `ambient`, Recording::ambient, says of an op's
/// surroundings: threads, determinism, precision and the like, where that is not torch's default.
/// Facts that decide above the dispatcher which ops are called are left out.
std::string python_ambient(const std::vector<trace::Fact>& ambient);

/// `'conv\x1b'`: printable ASCII in single quotes, everything else escaped.
std::string python_string(std::string_view text);

/// "torch.float32"
std::string python_dtype(trace::DType dtype);

/// `object` and below it the attribute `name`: "torch.ops.aten", "getattr(torch.ops, 'from')".
std::string python_attribute(std::string_view object, std::string_view name);

/// `name=value` among the arguments of a call.
std::string python_keyword_argument(std::string_view name, std::string_view value);

/// Values of arguments, in a program where tensors have names.
class PythonValue {
 public:
  virtual ~PythonValue() = default;
  /// Of an argument whose schema type is `type`: `0.1`, `[1, 2]`, `torch.float32`. Nothing for what
  /// a program cannot make.
  std::optional<std::string> text(const trace::Value& value, std::string_view type) const;

 protected:
  virtual std::string tensor_name(trace::TensorId id) const = 0;
  /// A generator of the program's own.
  virtual std::string generator() const = 0;

 private:
  std::optional<std::string> list(const trace::List& values, std::string_view type) const;
};

}  // namespace steptape::tools
