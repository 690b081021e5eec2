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
proto::Recording encode_recording(const trace::Recording& recording, const EncodeBytes& bytes);
proto::SavedState encode_saved(const trace::Saved& saved, const EncodeBytes& bytes);

}  // namespace steptape::storage
