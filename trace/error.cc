#include "steptape/error.h"

#include "trace/named.h"

namespace steptape {
namespace {

constexpr std::array kErrorNames = {
    trace::Named{ErrorCode::kInvalidArgument, "invalid_argument"},
    trace::Named{ErrorCode::kFailedPrecondition, "failed_precondition"},
    trace::Named{ErrorCode::kUnsupported, "unsupported"},
    trace::Named{ErrorCode::kDataLoss, "data_loss"},
    trace::Named{ErrorCode::kIo, "io"},
    trace::Named{ErrorCode::kInternal, "internal"},
};

}  // namespace

std::string_view name_of(ErrorCode code) noexcept { return trace::find_name(kErrorNames, code); }

}  // namespace steptape
