#include "session/arguments.h"

#include <utility>

namespace steptape::session {
namespace {

struct ToArgument {
  live::Argument operator()(at::Tensor& tensor) const { return {std::move(tensor), {}, true}; }
  live::Argument operator()(bool value) const { return {{}, {value}, false}; }
  live::Argument operator()(std::int64_t value) const { return {{}, {value}, false}; }
  live::Argument operator()(double value) const { return {{}, {trace::Real{value}}, false}; }
  live::Argument operator()(std::string& value) const { return {{}, {std::move(value)}, false}; }
};

struct ToValue {
  trace::Value operator()(bool value) const { return {value}; }
  trace::Value operator()(std::int64_t value) const { return {value}; }
  trace::Value operator()(double value) const { return {trace::Real{value}}; }
};

}  // namespace

live::Argument argument_of(pack::Leaf&& leaf) { return std::visit(ToArgument{}, leaf); }

std::vector<live::Argument> arguments_of(std::vector<pack::Leaf> leaves) {
  std::vector<live::Argument> arguments;
  arguments.reserve(leaves.size());
  for (pack::Leaf& leaf : leaves) arguments.push_back(argument_of(std::move(leaf)));
  return arguments;
}

trace::Value value_of(const pack::Number& number) { return std::visit(ToValue{}, number); }

pack::Number returned_of(const trace::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return *integer;
  return trace::number_of(value);
}

pack::Number number_of(double value, const trace::Value& recorded) {
  if (std::holds_alternative<bool>(recorded.data)) return value != 0;
  if (std::holds_alternative<std::int64_t>(recorded.data)) return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace steptape::session
