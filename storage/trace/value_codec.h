#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "trace.pb.h"
#include "trace/model.h"

/// Values and other small pieces, both ways. Decoding throws Error (data_loss) for a number that
/// does not fit; whether an enumerator or id exists is the matter of trace::validate.
namespace steptape::storage {

void encode(const trace::Value& value, proto::Value& out);
trace::Value decode(const proto::Value& in);
void encode(const trace::Device& device, proto::Device& out);
trace::Device decode(const proto::Device& in);
void encode(const trace::Digest& digest, proto::Digest& out);
trace::Digest decode(const proto::Digest& in);
void encode(const trace::Fact& fact, proto::Fact& out);
trace::Fact decode(const proto::Fact& in);

[[noreturn]] void number_is_out_of_range(std::string_view what, std::uint64_t number);

/// The enumerator or small number `number`. Throws Error (data_loss) when it needs more bits.
template <typename Small>
Small decode_small(std::string_view what, std::uint32_t number) {
  if (number > std::numeric_limits<std::uint8_t>::max()) number_is_out_of_range(what, number);
  return static_cast<Small>(number);
}

/// kNone and kNoTensor are the largest number, so that one more is 0.
inline std::uint32_t plus_one(std::uint32_t index) { return index + 1; }
inline std::uint32_t minus_one(std::uint32_t stored) { return stored - 1; }
/// -1 is absence.
inline std::uint64_t plus_one(std::int64_t number) {
  return static_cast<std::uint64_t>(number) + 1;
}
inline std::int64_t minus_one(std::uint64_t stored) {
  return static_cast<std::int64_t>(stored - 1);
}

}  // namespace steptape::storage
