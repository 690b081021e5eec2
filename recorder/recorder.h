#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "live/collectives.h"
#include "live/objects.h"
#include "live/values.h"
#include "recorder/frontend_hints.h"
#include "recorder/intercept/interceptor.h"
#include "trace/model.h"

namespace torch::autograd {
enum class CreationMeta : std::uint8_t;
}

namespace steptape::recorder {

using Argument = live::Argument;

/// What a step function returned.
struct Returned {
  Returned() = default;
  /// Tensors alone.
  Returned(std::vector<at::Tensor> tensors) : results(std::move(tensors)) {}

  std::vector<at::Tensor> results;
  std::vector<trace::Value> numbers;
  std::size_t observed = 0;  ///< so many of the last results are for Session::observe
};
using StepFunction = std::function<Returned()>;

/// An outside tensor that the step reads and nobody tracked, held weakly until the plan binds it.
struct Outside {
  std::string path;  ///< "outside[0]", "optimizer.<unnamed 1>"
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  struct Tensor {
    trace::TensorId id;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> object;
  };
  std::vector<Tensor> tensors;  ///< that ops were given and the program holds on to
};

/// A result that is the very tensor object of an argument, of a tracked tensor, of a gradient or of
/// an earlier result, not a view of it.
struct Identity {
  /// kGradient: what stands in `.grad` when the step ends; kEntryGradient: what stood there before.
  enum class Of { kNothing, kArgument, kTracked, kGradient, kEntryGradient, kResult };
  Of of = Of::kNothing;
  /// In the arguments, Recording::tracked, Recording::exit_gradients or the results.
  std::size_t position = 0;
  /// Of a tensor that nobody had: the name of its node in the graph that backward has consumed, or
  /// "", and how often the step has written it.
  std::string node = {};
  std::uint32_t version = 0;
  /// Of a view, to autograd, of a tensor that requires no gradient.
  struct View {
    Of of = Of::kNothing;      ///< kArgument, kTracked or kResult; kNothing: the step made it
    std::size_t position = 0;  ///< there, or among those that the step made
    trace::TensorId base = trace::kNoTensor;
    torch::autograd::CreationMeta creation = {};
  };
  std::optional<View> view = {};
};

struct Recorded {
  trace::Recording recording;
  std::vector<at::Tensor> results;  ///< as the step function returned them
  std::vector<Outside> outside;
  /// For each result: which object it is, where it is one that the caller has already.
  std::vector<Identity> identities;
  /// How far the step moved the version counter of each of Recording::tracked, and of each of
  /// Recording::inputs. An op that writes through `.data()` moves none.
  std::vector<std::uint32_t> moved_versions = {}, moved_inputs = {};
  /// Gradients that are other objects after the step than before it, by path, be it over the same
  /// memory.
  std::set<std::string> renewed_gradients = {};
  /// Gradients that require grad after the step, by path, as those of `backward(create_graph=True)`
  /// do: the names of their nodes in the graph that backward has consumed, or "".
  std::map<std::string, std::string> gradient_nodes = {};
  /// Of Recording::exit_gradients: the earlier one that is the very same tensor.
  std::map<std::size_t, std::size_t> same_gradients = {};
  /// In which the step asks where a tensor lies.
  std::set<trace::BufferId> kept_buffers = {};
  FrontendHints hints;  ///< of the step's front end; its refusals and effects are in the recording
  /// Where optimizer state, lazy parameters or tensors of the program's came into being first: a
  /// warm-up, not a probe. "": nowhere.
  std::string created_state = {};
  bool is_warm_up() const { return !created_state.empty(); }
  /// Depth::kBytes: of each buffer that the step found, by its id, and of each of
  /// Recording::generators. Null for what is not on the CPU.
  std::vector<trace::Blob> found = {};
  std::vector<trace::Blob> generators_found = {};
};

/// How closely what a step finds and what its ops leave are looked at.
enum class Depth {
  /// Nothing: digests are taken of buffers that nobody tracked, by which two recordings of one
  /// process are compared.
  kPlain,
  /// And digests of all that the step finds and that each op leaves, by which two runs are
  /// compared.
  kDigests,
  /// And the bytes of all that the step finds, from which it can be done again.
  kBytes,
};

/// What is looked at besides what plans are made from.
struct Detail {
  Depth depth = Depth::kPlain;
  bool timings = false;  ///< how long each op takes: Recording::op_ns
  /// What the call that is recorded has issued already, and issues; null: nobody else asks.
  std::shared_ptr<live::Exchanges> exchanges = nullptr;
};

/// Runs `step` once, eagerly, and writes down what it did. The step's results are those of the
/// eager step, bit for bit: nothing is kept alive, no op is added. What the recorder does not
/// understand becomes a Refusal in the recording. An exception of the step passes through, with the
/// thread as it was before. Must not be called while another recording is active in this thread.
Recorded record(const StepFunction& step, const std::vector<Argument>& arguments,
                const live::Objects& objects, Interceptor& interceptor, const Detail& detail = {});

/// Whether ops of this thread are being recorded.
bool is_recording() noexcept;

/// A recording that is under way in this thread, from its making until `close`; for steps that are
/// no function. One that goes without `close` leaves the thread as it was before it.
class OpenRecording {
 public:
  /// As `record`. `objects` and `interceptor` must outlive this.
  OpenRecording(std::vector<Argument> arguments, const live::Objects& objects,
                Interceptor& interceptor, const Detail& detail = {});
  ~OpenRecording();
  OpenRecording(const OpenRecording&) = delete;
  OpenRecording& operator=(const OpenRecording&) = delete;

  /// Ends it and gives what the step did; `returned` is what came out of it.
  Recorded close(Returned returned);

 private:
  struct Listening;

  std::vector<Argument> arguments_;
  std::vector<trace::Blob> found_;
  std::vector<trace::Blob> generators_found_;
  std::shared_ptr<class Tape> tape_;
  std::unique_ptr<Listening> listening_;
};

}  // namespace steptape::recorder
