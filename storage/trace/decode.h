#pragma once

#include <functional>

#include "trace.pb.h"
#include "trace/model.h"

/// From the messages of the file to the model. Throws Error (data_loss) for what the model cannot
/// hold; the caller validates the rest.
namespace steptape::storage {

/// The bytes of a reference. May throw Error (data_loss) when the file does not hold them.
using DecodeBytes = std::function<trace::Blob(const proto::BytesRef&)>;

/// Fills in producer, run and environment.
void decode_head(const proto::Head& in, trace::Trace& trace);
trace::Step decode_step(const proto::Step& in);
trace::Recording decode_recording(const proto::Recording& in, const DecodeBytes& bytes);
trace::Saved decode_saved(const proto::SavedState& in, const DecodeBytes& bytes);

}  // namespace steptape::storage
