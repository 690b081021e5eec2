#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "live/objects.h"
#include "recorder/context/attribution.h"
#include "recorder/context/generators.h"
#include "recorder/context/graphs.h"
#include "recorder/context/modules.h"
#include "recorder/frontend_hints.h"
#include "recorder/operators.h"
#include "recorder/recorder.h"
#include "recorder/refusals.h"
#include "recorder/tensor_table.h"
#include "trace/model.h"

namespace steptape::recorder {

/// A tensor of the snapshot at entry: what is compared at exit. Holds no handle, so that gradients
/// and state die when the step lets go of them.
struct TensorAtEntry {
  std::string path;
  trace::Role role;
  trace::TensorId tensor;
  std::optional<std::uint32_t> version;  ///< of its version counter; none for one without
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> object;
  int gradient_type;  ///< see live::gradient_type_of
};

/// The first write to memory that nobody announced.
struct UntrackedWrite {
  Site site;
  std::string text;
};

/// The version counter of a tensor, where it has one.
std::optional<std::uint32_t> version_of(const at::Tensor& tensor);

/// A recording in the making and what is known about it: filled by `write_entry`, then op by op by
/// the Tape, then by `write_exit`.
struct RecordingState {
  explicit RecordingState(const live::Objects& tracked) : objects(tracked), generators(tracked) {
    hints.count(recording.ops);
  }

  const live::Objects& objects;
  trace::Recording recording;
  Refusals refusals{recording};
  TensorTable tensor_table{recording, refusals};
  OperatorTable operators{recording.operators};
  ModuleWatch modules{recording};
  Attribution::Accumulations accumulations;
  GeneratorWatch generators;
  GraphWatch graphs;
  /// Tensors that ops were given, over memory that nobody announced.
  std::unordered_map<const c10::TensorImpl*, Outside::Tensor> foreign;
  std::map<trace::BufferId, UntrackedWrite> untracked_writes;
  FrontendHints hints;
  std::vector<TensorAtEntry> entry;
  std::vector<std::optional<std::uint32_t>> argument_versions;
  std::vector<bool> arguments_with_gradients;
};

/// Of a leaf.
bool has_gradient(const at::Tensor& tensor);

/// Inputs, then tracked objects, then what is around the step.
void write_entry(RecordingState& state, const std::vector<Argument>& arguments);

/// Of all bytes of all buffers that the step finds, those on the CPU, and of generators.
void write_entry_digests(RecordingState& state);
/// The bytes themselves, by buffer and by position in Recording::generators.
void copy_entry(const RecordingState& state, std::vector<trace::Blob>& found,
                std::vector<trace::Blob>& generators);

/// Roles, gradients, results, and what the step left behind.
void write_exit(RecordingState& state, const std::vector<Argument>& arguments, Recorded& recorded);

}  // namespace steptape::recorder
