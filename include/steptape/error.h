#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace steptape {

/// What a caller can do about an Error.
enum class ErrorCode {
  kInvalidArgument,     ///< the call was wrong: mend the arguments
  kFailedPrecondition,  ///< the call came at the wrong time: mend the order of calls
  kUnsupported,         ///< this build or machine cannot do it: another version or environment may
  kDataLoss,            ///< bytes of a file are wrong or missing: fetch another copy
  kIo,                  ///< the operating system refused: mend disk, path or rights and try again
  kInternal,            ///< a bug of Steptape's own: please report it
};

/// The stable name of a code: "invalid_argument", "data_loss", ...
std::string_view name_of(ErrorCode code) noexcept;

/// The one exception type that Steptape throws. Exceptions of the user's own step pass through
/// Steptape untouched and are never wrapped in it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace steptape
