#pragma once

#include <functional>
#include <string_view>

#include "trace.pb.h"
#include "trace/model.h"

/// From the model to the messages of the file.
namespace steptape::storage {

/// Gives bytes an id and sees to it that they are written.
using EncodeBytes = std::function<void(const trace::Blob&, proto::BytesRef&)>;

proto::Head encode_head(const trace::Trace& trace);
proto::Step encode_step(std::string_view name, std::string_view place);
proto::StepAgain encode_step_again(std::string_view name);
proto::StepAgain encode_account(const trace::Step& step);
proto::Recording encode_recording(const trace::Recording& recording, const EncodeBytes& bytes);
proto::SavedState encode_saved(const trace::Saved& saved, const EncodeBytes& bytes);

// From the messages of the file to the model. Throws Error (data_loss) for what the model cannot
// hold; the caller validates the rest.

/// The bytes of a reference. May throw Error (data_loss) when the file does not hold them.
using DecodeBytes = std::function<trace::Blob(const proto::BytesRef&)>;

/// Fills in producer, run and environment.
void decode_head(const proto::Head& in, trace::Trace& trace);
trace::Step decode_step(const proto::Step& in);
trace::Account decode_account(const proto::Account& in);
trace::Recording decode_recording(const proto::Recording& in, const DecodeBytes& bytes);
trace::Saved decode_saved(const proto::SavedState& in, const DecodeBytes& bytes);

}  // namespace steptape::storage
