#include "python/engine/words.h"

#include <Python.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "python/engine/arguments.h"
#include "python/engine/python.h"
#include "trace/text/text.h"

namespace steptape::python {
namespace {

using enum RefusalCode;

struct Row {
  RefusalCode code;
  std::string_view says;  ///< what the message holds
  std::string_view remedy;
};

constexpr std::string_view kOnOneStream =
    "order streams, record events and launch graphs between steps, and call the step on one "
    "stream";
constexpr std::string_view kAsATensor = "return the tensor, and call numpy() on it after the step";

/// The first row that fits counts: the last ones fit whatever the message says.
constexpr std::array kRows = {
    Row{kWrittenOutside, "`numpy` gives", kAsATensor},
    Row{kHostEffect, "the step returns a numpy", kAsATensor},
    Row{kHostEffect, "the step uses a stream", kOnOneStream},
    Row{kDevice, "the op is given to another stream", kOnOneStream},
    Row{kHostEffect, "what the step returns went",
        "return the number or tensor itself, and make a text of it after the step"},
    Row{kHostEffect, "that is held elsewhere too", "return a copy: dict(logs), list(items)"},
    Row{kHostEffect, "the step prints or writes",
        "show what the step returns after the call, or a tensor after each call with "
        "steptape.observe(tensor, function)"},
    Row{kHostEffect, "the step takes a lock", "take it around the call of the step"},
    Row{kHostEffect, "reads the clock",
        "measure around the call of the step, or declare it: now = steptape.host(time.time), and "
        "now() in the step"},
    Row{kHostEffect, "requires grad", "write into x.clone(), and leave the argument as it is"},
    Row{kHostEffect, "is another one in each call",
        "compare or mark tensors before the step, and pass the answer as an argument"},
    Row{kHostEffect, "the step uses another module",
        "make it once, before the first call, or call a step of its own for each"},
    Row{kHostEffect, "in which a tensor stood that it is given",
        "keep a copy (window.append(x.clone())), or put a new list there (window = [*window[1:], "
        "x])"},
    Row{kHostEffect, "which tensor it is",
        "decide before the step, and pass the decision as a bool"},
    Row{kTooManyVariants, ".data_ptr", "copy rows into tensors of their own: x[i:j].clone()"},
    Row{kTooManyVariants, ".size(", "pad inputs to few shapes, or raise max_variants"},
    Row{kEscapedBuffer, "in the graph of a result",
        "return aux.detach() of each result but the loss; what is kept elsewhere, return, or "
        "copy_() into a tensor made before the step"},
    Row{kUnconsumedGraph, "what the step leaves in", "keep tensor.detach() there"},
    Row{kUnconsumedGraph, "results[", "return loss.detach(), or loss.item()"},
    Row{kOptimizerUnsupported, "LBFGS",
        "closure = steptape.wrap(closure); optimizer.step(closure)"},
    Row{kReboundTensor, ".grad",
        "let the step begin with the gradients that the last call left, and call zero_grad() in "
        "it"},
    Row{kReboundTensor, "the gradient of",
        "let the step begin with the gradients that the last call left, and call zero_grad() in "
        "it"},
    Row{kTensorKind, "DTensor",
        "train with DistributedDataParallel, or call the step as it is: what fully_shard and "
        "tensor parallelism share out is not replayed"},
    Row{kUnreplayableOp,
        "`_c10d_functional::", "exchange tensors in place, as dist.all_reduce(tensor) does"},
    Row{kUnreplayableOp, "`c10d::", "exchange them by a collective, or between steps"},
    Row{kHostRead, "array of NumPy",
        "make a tensor of it with torch.as_tensor() in the step, or pass what the host reads as "
        "a number"},
    Row{kHostRead, "",
        "return the value from the step, or look at it with steptape.observe(tensor, function); "
        "keep decisions on tensors: torch.where(), clamp(), index_select() or a mask; read "
        "numbers that enter arithmetic with item(), which is followed; or wrap with "
        "host_reads=\"observe\" if the step only looks"},
    Row{kDataDependentShape, "",
        "keep shapes fixed with torch.where() or a mask in place of nonzero() or boolean "
        "indexing, or do that part before the step and pass its result"},
    Row{kUntrackedWrite, "",
        "let the step reach what owns the tensor by its closure, pass model= and optimizer= to "
        "wrap, or return the new value instead of writing it in place"},
    Row{kUnwrittenRead, "",
        "fill the tensor with an op inside the step (zeros() in place of empty()), or pass it as "
        "an argument; make tensors of NumPy arrays before the step"},
    Row{kWrittenOutside, "`untyped_storage`",
        "copy.deepcopy goes to a tensor's memory: copy it by clone(), and a state_dict as {name: "
        "t.clone() for name, t in model.state_dict().items()}"},
    Row{kWrittenOutside, "",
        "write with torch ops instead of NumPy or data_ptr(), or write between steps"},
    Row{kUnannotatedWrite, "",
        "mark the written argument in the op's schema, as in Tensor(a!) self"},
    Row{kHostTensorVaries, "state of a random generator",
        "take it between steps, or set it again in the step and do nothing else with it"},
    Row{kHostTensorVaries, "",
        "make the tensor before the step and pass it as an argument; draw with torch"},
    Row{kOutsideTensorVaries, "", "pass the tensor as an argument of the step"},
    Row{kOverlappingMemory, "",
        "clone() what from_numpy() or from_blob() laid over the same bytes"},
    Row{kEscapedBuffer, "",
        "return the tensor from the step, or copy_() it into a tensor made before the step"},
    Row{kReboundTensor, "",
        "write tensors in place: p.data.copy_(value) instead of p.data = value"},
    Row{kTensorKind, "",
        "use dense strided tensors in the step: Embedding(sparse=False), to_dense(), dequantize()"},
    Row{kDevice, "", "move model and data to the CPU, or call the function without wrapping it"},
    Row{kDispatchMode, "",
        "leave the dispatch mode or functorch transform before calling the step"},
    Row{kGeneratorSeek, "", "call manual_seed(), set_rng_state() or fork_rng() between steps"},
    Row{kUntrackedGenerator, "",
        "let the step reach the generator by its closure, or draw from the default one"},
    Row{kUnreplayableOp, "`aten::set_`",
        "assign p.data, or copy_() into the tensor; a copy is made by clone(), not by "
        "copy.deepcopy"},
    Row{kUnreplayableOp, "",
        "call the op outside the step, or compute the same with torch's own ops"},
    Row{kUnstableOpStream, "",
        "make the step issue the same ops every time: wrap each branch as a step of its own, and "
        "pad inputs to few shapes"},
    Row{kScalarVaries, "went \"~",  // Arguments::kStructure
        "pass the same functions and objects in each call, made once before: a lambda that is "
        "made anew is another argument"},
    Row{kScalarVaries, "",
        "compute on the number with Python's operators, min, max, abs, round and the functions of "
        "`math` and NumPy for single numbers, which are followed; where it decides, pass the "
        "decision as a bool; or pass it as a tensor"},
    Row{kOptimizerUnsupported, "", "wrap the rest, and step the optimizer after it"},
    Row{kHyperparameterChanged, "",
        "compute it from numbers that are followed (an argument, a counter, what stood there), "
        "or change it after the step"},
    Row{kUnconsumedGraph, "",
        "call backward() inside the step, detach() arguments and results, or run the step under "
        "torch.no_grad()"},
    Row{kTrialDiverged, "",
        "look for what the step does besides torch ops (docs/blind_spots.md); if there is "
        "nothing, please report it with the trace"},
    Row{kAuditDiverged, "",
        "look for state that only eager steps advance, and pass it as an argument "
        "(docs/blind_spots.md)"},
    Row{kTooManyVariants, "",
        "let what the guard names take few values: pad inputs to few shapes, pass the decision "
        "that a number makes as a bool, keep one object in place of a new one in each call; or "
        "raise max_variants"},
    Row{kNestedStep, "",
        "nothing, if the outer step replays; where it runs eagerly, the inner one has a life of "
        "its own"},
    Row{kReplayThrew, "",
        "mend what the message names, and call invalidate(why) to record the step anew"},
    Row{kNoInterceptor, "",
        "another library has taken the dispatch key `Fake` in this process; load it without"},
    Row{kRecordingFailed, "",
        "report this with the message and the versions; the step ran eagerly and is right"},
    Row{kTrialSkipped, "",
        "free memory, or wrap with verify={\"first\": False} to trust plans without a trial"},
    Row{kHostEffect, "",
        "do it between steps, with what the step returns, or look at tensors with "
        "steptape.observe(); what is to be read anew in each call, pass as an argument or "
        "declare with steptape.host(function)"},
    Row{kHostRandom, "",
        "draw with torch, or declare the number: u = steptape.host(random.random), and u() in "
        "the step"},
    Row{kOpaqueArgument, "",
        "pass tensors, arrays, numbers, strings and containers of them, or the same object in each "
        "call"},
    Row{kNondeterministicOp, "",
        "use a deterministic op (torch.use_deterministic_algorithms names some), or one thread; "
        "or wrap with determinism=\"listed\""},
};

constexpr bool has_remedy(RefusalCode code) {
  for (const Row& row : kRows) {
    if (row.code == code && row.says.empty()) return true;
  }
  return false;
}

constexpr bool have_all_remedies() {
  for (std::uint8_t code = 1; code <= static_cast<std::uint8_t>(kNondeterministicOp); ++code) {
    if (!has_remedy(RefusalCode{code})) return false;
  }
  return true;
}
static_assert(have_all_remedies());

/// Of a text that goes on with `before` and the old and the new structure of the arguments, each
/// in quotes: where they end, or npos.
std::size_t end_of_structures(std::string_view text, std::size_t at, std::string_view before) {
  const std::string begin = std::string(before) + "\"" + Arguments::kStructure;
  constexpr std::string_view kBetween = "\" → \"";
  if (!text.substr(at).starts_with(begin)) return text.npos;
  const std::size_t between = text.find(kBetween, at + begin.size());
  if (between == text.npos) return text.npos;
  std::size_t quote = between + kBetween.size() - 1;
  do {
    quote = text.find('"', quote + 1);
    if (quote == text.npos) return text.npos;
    const std::string_view rest = text.substr(quote + 1);
    if (rest.empty() || rest.starts_with(" (") || rest.starts_with(';')) return quote + 1;
  } while (true);
}

/// "inputs[3]" → what the third is called.
std::string with_names(std::string_view text, const std::vector<std::string>& names) {
  constexpr std::string_view kInput = "inputs[", kArgument = "argument: ";
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(kInput); at != text.npos; at = text.find(kInput, at + 1)) {
    std::size_t k = 0;
    const char* const digits = text.data() + at + kInput.size();
    const auto [last, error] = std::from_chars(digits, text.data() + text.size(), k);
    if (error != std::errc() || last == text.data() + text.size() || *last != ']') continue;
    const auto end = static_cast<std::size_t>(last + 1 - text.data());
    const std::string name = k < names.size() ? names[k] : "";
    out += text.substr(done, at - done);
    done = end;
    const std::size_t of_guard =
        out.ends_with(kArgument) ? end_of_structures(text, end, ": ") : text.npos;
    const std::size_t of_probes = end_of_structures(text, end, " went ");
    if (of_guard != text.npos) {
      out += "the arguments are of another kind or structure";
      done = of_guard;
    } else if (of_probes != text.npos) {
      out +=
          "the arguments became others, of another kind or structure, or a function or object "
          "that is made anew in each call";
      done = of_probes;
    } else {
      out += name.empty() ? text.substr(at, end - at) : name;
    }
  }
  return out.append(text.substr(done));
}

/// "predicate: p: zero → 1" → "condition: p is true now".
std::string with_conditions(std::string text) {
  constexpr std::string_view kPredicate = "predicate: ";
  constexpr std::string_view kZero = ": zero → ", kNotZero = ": not zero → ";
  for (std::size_t at = text.find(kPredicate); at != text.npos;
       at = text.find(kPredicate, at + 1)) {
    const std::size_t name = at + kPredicate.size();
    const std::size_t zero = text.find(kZero, name), not_zero = text.find(kNotZero, name);
    const std::size_t colon = std::min(zero, not_zero);
    if (colon == text.npos) break;
    const std::size_t now = colon + (zero < not_zero ? kZero : kNotZero).size();
    const std::size_t end = std::min(text.find(' ', now), text.size());
    text.replace(colon, end - colon, zero < not_zero ? " is true now" : " is false now");
    text.replace(at, kPredicate.size(), "condition: ");
  }
  return text;
}

}  // namespace

std::string Words::named(const std::string& text) const {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kWords = {{
      {"differs from variant 0 in: nothing that a recording holds",
       "differs from variant 0 in: what it read of the program"},
      {"inputs.size: ", "parts of the arguments: "},
  }};
  std::string out = with_conditions(with_names(text, names));
  for (const auto& [words, instead] : kWords) {
    for (std::size_t at = out.find(words); at != out.npos; at = out.find(words))
      out.replace(at, words.size(), instead);
  }
  return out;
}

std::string Words::remedy_for(const Refusal& refusal) const {
  for (const Row& row : kRows) {
    if (row.code == refusal.code && refusal.message.find(row.says) != std::string::npos) {
      return std::string(row.remedy);
    }
  }
  return Wording::remedy_for(refusal);
}

std::string Words::source_at(const std::string& place) const {
  const std::size_t colon = place.rfind(':');
  try {
    const py::object line =
        module_named("linecache")
            .attr("getline")(place.substr(0, colon), std::stoi(place.substr(colon + 1)));
    return py::cast<std::string>(line.attr("strip")());
  } catch (const std::exception&) {  // the interpreter is on its way out, or the text is no UTF-8
    return Wording::source_at(place);
  }
}

}  // namespace steptape::python
