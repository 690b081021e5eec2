#include "session/observe/json_line.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

namespace steptape::session {
namespace {

constexpr unsigned char kFirstPrintable = 0x20;
constexpr unsigned char kDelete = 0x7f;

bool is_between(unsigned char byte, unsigned first, unsigned last) {
  return byte >= first && byte <= last;
}

/// Bytes of the character that `text` begins with, 0 when it begins with none (Unicode 15, table
/// 3-7: neither overlong forms nor surrogates).
std::size_t length_of_character(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0);
  };
  struct Form {
    unsigned first, last;  // of the leading byte
    unsigned second_first, second_last;
    std::size_t length;
  };
  constexpr std::array<Form, 9> kForms = {{{0x00, 0x7f, 0x00, 0xff, 1},
                                           {0xc2, 0xdf, 0x80, 0xbf, 2},
                                           {0xe0, 0xe0, 0xa0, 0xbf, 3},
                                           {0xe1, 0xec, 0x80, 0xbf, 3},
                                           {0xed, 0xed, 0x80, 0x9f, 3},
                                           {0xee, 0xef, 0x80, 0xbf, 3},
                                           {0xf0, 0xf0, 0x90, 0xbf, 4},
                                           {0xf1, 0xf3, 0x80, 0xbf, 4},
                                           {0xf4, 0xf4, 0x80, 0x8f, 4}}};
  for (const Form& form : kForms) {
    if (!is_between(at(0), form.first, form.last)) continue;
    if (form.length > 1 && !is_between(at(1), form.second_first, form.second_last)) return 0;
    for (std::size_t i = 2; i < form.length; ++i) {
      if (!is_between(at(i), 0x80, 0xbf)) return 0;
    }
    return form.length;
  }
  return 0;
}

void add_escaped(std::string& text, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  switch (byte) {
    case '"':
    case '\\':
      text += {'\\', static_cast<char>(byte)};
      return;
    case '\n':
      text += "\\n";
      return;
    case '\t':
      text += "\\t";
      return;
    default:
      text += "\\u00";
      text += {kDigits[byte >> 4U], kDigits[byte & 0xfU]};
  }
}

}  // namespace

void JsonLine::add_key(std::string_view key) {
  if (!fields_.empty()) fields_ += ", ";
  fields_ += '"' + std::string(key) + "\": ";
}

void JsonLine::add_text(std::string_view key, std::string_view value) {
  add_key(key);
  fields_ += '"';
  while (!value.empty()) {
    const std::size_t length = length_of_character(value);
    const auto byte = static_cast<unsigned char>(value.front());
    if (length == 0) {
      fields_ += "\uFFFD";
    } else if (length == 1 &&
               (byte < kFirstPrintable || byte == kDelete || byte == '"' || byte == '\\')) {
      add_escaped(fields_, byte);
    } else {
      fields_ += value.substr(0, length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
  }
  fields_ += '"';
}

void JsonLine::add_count(std::string_view key, std::uint64_t value) {
  add_key(key);
  fields_ += std::to_string(value);
}

void JsonLine::add_real(std::string_view key, double value) {
  add_key(key);
  if (!std::isfinite(value)) {
    fields_ += "null";
    return;
  }
  constexpr std::size_t kMostDigits = 32;
  std::array<char, kMostDigits> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  fields_.append(digits.data(), written.ptr);
}

}  // namespace steptape::session
