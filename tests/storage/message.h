#pragma once

#include <cstdint>
#include <string>

#include "storage/files/wire.h"

namespace steptape::storage {

/// A protobuf message built field by field, as the generated code is storage's own and would not
/// write everything.
class Message {
 public:
  static void put_varint(std::string& out, std::uint64_t number) {
    for (; number >= 128; number >>= 7) out += static_cast<char>(number | 128);
    out += static_cast<char>(number);
  }

  Message& number(unsigned field, std::uint64_t value) {
    put_varint(text_, field << 3);
    put_varint(text_, value);
    return *this;
  }
  /// Of type sint64 or sint32.
  Message& with_sign(unsigned field, std::int64_t value) {
    return number(field,
                  static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  Message& bytes(unsigned field, const std::string& content) {
    announce(field, content.size());
    text_ += content;
    return *this;
  }
  Message& message(unsigned field, const Message& inner) { return bytes(field, inner.text_); }
  Message& fixed64(unsigned field, std::uint64_t value) {
    put_varint(text_, field << 3 | 1);
    put(text_, value);
    return *this;
  }
  /// Bytes or a message of `size` bytes, none of which follow.
  Message& announce(unsigned field, std::uint64_t size) {
    put_varint(text_, field << 3 | 2);
    put_varint(text_, size);
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace steptape::storage
