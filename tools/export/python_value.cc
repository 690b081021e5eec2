#include "tools/export/python_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "trace/text/text.h"

namespace steptape::tools {
namespace {

struct Switch {
  std::string_view fact, value;
  std::string_view statement;
};
constexpr std::array kSwitches = {
    // an op that knows no deterministic way did run when it was recorded
    Switch{"deterministic", "on", "torch.use_deterministic_algorithms(True, warn_only=True)"},
    Switch{"mkldnn", "off", "torch.backends.mkldnn.set_flags(False)"},
    Switch{"cudnn", "off", "torch.backends.cudnn.enabled = False"},
    Switch{"cudnn_benchmark", "on", "torch.backends.cudnn.benchmark = True"},
    Switch{"cudnn_deterministic", "on", "torch.backends.cudnn.deterministic = True"},
    Switch{"flush_denormal", "on", "torch.set_flush_denormal(True)"},
    Switch{"default_dtype", "Double", "torch.set_default_dtype(torch.float64)"},
    Switch{"default_dtype", "Half", "torch.set_default_dtype(torch.float16)"},
    Switch{"default_dtype", "BFloat16", "torch.set_default_dtype(torch.bfloat16)"},
    Switch{"matmul_precision", "1", "torch.set_float32_matmul_precision('high')"},
    Switch{"matmul_precision", "2", "torch.set_float32_matmul_precision('medium')"},
};

/// Nothing for a fact that is not a number of threads.
std::string threads(const trace::Fact& fact) {
  std::uint16_t count = 0;
  const char* end = fact.value.data() + fact.value.size();
  const auto read = std::from_chars(fact.value.data(), end, count);
  const bool is_count = read.ec == std::errc() && read.ptr == end && count > 0;
  return fact.name == "threads" && is_count ? fmt::format("torch.set_num_threads({})\n", count)
                                            : "";
}

/// Enumerators of torch that stand on its stack as integers, by their numbers there.
constexpr std::array kScalarTypes = {
    "uint8",     "int8",      "int16",      "int32", "int64", "float16", "float32", "float64",
    "complex32", "complex64", "complex128", "bool",  "qint8", "quint8",  "qint32",  "bfloat16"};
constexpr std::array kMemoryFormats = {"contiguous_format", "preserve_format", "channels_last",
                                       "channels_last_3d"};
constexpr std::array kLayouts = {"strided", "sparse_coo"};

/// Words of Python's own, which no attribute is called by with a dot.
constexpr std::array kKeywords = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};

bool is_identifier(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
  return !name.empty() && kDigits.find(name.front()) == std::string_view::npos &&
         name.find_first_not_of(kAllowed) == std::string_view::npos &&
         std::ranges::find(kKeywords, name) == kKeywords.end();
}

/// torch takes the number too, where it has no name here.
template <std::size_t Size>
std::string enumerator(const std::array<const char*, Size>& names, std::int64_t number) {
  if (number < 0 || number >= static_cast<std::int64_t>(Size)) return std::to_string(number);
  return fmt::format("torch.{}", names[static_cast<std::size_t>(number)]);
}

std::string integer(std::int64_t number, std::string_view type) {
  if (type.starts_with("ScalarType")) return enumerator(kScalarTypes, number);
  if (type.starts_with("MemoryFormat")) return enumerator(kMemoryFormats, number);
  if (type.starts_with("Layout")) return enumerator(kLayouts, number);
  return std::to_string(number);
}

std::string real(double number) {
  if (std::isnan(number)) return "float('nan')";
  if (std::isinf(number)) return number < 0 ? "-float('inf')" : "float('inf')";
  return trace::words_of({trace::Real{number}});
}

std::optional<std::string> device_text(const trace::Device& device) {
  if (device.kind == trace::DeviceKind::kOther) return std::nullopt;
  return fmt::format("torch.device('{}')", text_of(device));
}

}  // namespace

std::string python_ambient(const std::vector<trace::Fact>& ambient) {
  std::string text;
  for (const trace::Fact& fact : ambient) {
    text += threads(fact);
    const auto* const row = std::ranges::find_if(kSwitches, [&](const Switch& known) {
      return known.fact == fact.name && known.value == fact.value;
    });
    if (row != kSwitches.end()) text += fmt::format("{}\n", row->statement);
  }
  return text;
}

std::string python_string(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (byte < ' ' || byte > '~') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string python_dtype(trace::DType dtype) { return fmt::format("torch.{}", name_of(dtype)); }

std::string python_attribute(std::string_view object, std::string_view name) {
  return is_identifier(name) ? fmt::format("{}.{}", object, name)
                             : fmt::format("getattr({}, {})", object, python_string(name));
}

std::string python_keyword_argument(std::string_view name, std::string_view value) {
  return is_identifier(name) ? fmt::format("{}={}", name, value)
                             : fmt::format("**{{{}: {}}}", python_string(name), value);
}

std::optional<std::string> PythonValue::list(const trace::List& values,
                                             std::string_view type) const {
  std::string text;
  for (const trace::Value& item : values) {
    const std::optional<std::string> words = this->text(item, type);
    if (!words) return std::nullopt;
    text += (text.empty() ? "" : ", ") + *words;
  }
  return "[" + text + "]";
}

std::optional<std::string> PythonValue::text(const trace::Value& value,
                                             std::string_view type) const {
  const auto& data = value.data;
  if (std::holds_alternative<trace::None>(data)) return "None";
  if (const auto* flag = std::get_if<bool>(&data)) return *flag ? "True" : "False";
  if (const auto* number = std::get_if<std::int64_t>(&data)) return integer(*number, type);
  if (const auto* number = std::get_if<trace::Real>(&data)) return real(number->value);
  if (const auto* number = std::get_if<trace::Complex>(&data)) {
    return fmt::format("complex({}, {})", real(number->real.value), real(number->imag.value));
  }
  if (const auto* text = std::get_if<std::string>(&data)) return python_string(*text);
  if (const auto* device = std::get_if<trace::Device>(&data)) return device_text(*device);
  if (const auto* tensor = std::get_if<trace::TensorRef>(&data)) {
    return tensor->id == trace::kNoTensor ? "None" : tensor_name(tensor->id);
  }
  if (const auto* numbers = std::get_if<trace::IntList>(&data)) {
    return fmt::format("[{}]", fmt::join(*numbers, ", "));
  }
  if (const auto* values = std::get_if<trace::List>(&data)) return list(*values, type);
  if (const auto* made = std::get_if<trace::GeneratorRef>(&data)) {
    return made->path == "default" ? "torch.default_generator" : generator();
  }
  return std::nullopt;
}

}  // namespace steptape::tools
