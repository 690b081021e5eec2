"""What explain() and stats say of a refusal or a guard, in the program's words: names of arguments in place of positions, and what to
change so that the step can be replayed; docs/refusals.md has the causes."""
import re

REMEDIES = {
    "host_read": "return the value from the step, or look at it with steptape.observe(tensor, function); keep "
                 "decisions on tensors: torch.where(), clamp(), index_select() or a mask; read numbers that enter "
                 "arithmetic with item(), which is followed; or wrap with host_reads=\"observe\" if the step only looks",
    "data_dependent_shape": "keep shapes fixed with torch.where() or a mask in place of nonzero() or boolean "
                            "indexing, or do that part before the step and pass its result",
    "untracked_write": "let the step reach what owns the tensor by its closure, pass model= and optimizer= to "
                       "wrap, or return the new value instead of writing it in place",
    "unwritten_read": "fill the tensor with an op inside the step (zeros() in place of empty()), or pass it as "
                      "an argument; make tensors of NumPy arrays before the step",
    "written_outside": "write with torch ops instead of NumPy or data_ptr(), or write between steps",
    "unannotated_write": "mark the written argument in the op's schema, as in Tensor(a!) self",
    "host_tensor_varies": "make the tensor before the step and pass it as an argument; draw with torch",
    "outside_tensor_varies": "pass the tensor as an argument of the step",
    "overlapping_memory": "clone() what from_numpy() or from_blob() laid over the same bytes",
    "escaped_buffer": "return the tensor from the step, or copy_() it into a tensor made before the step",
    "rebound_tensor": "write tensors in place: p.data.copy_(value) instead of p.data = value",
    "tensor_kind": "use dense strided tensors in the step: Embedding(sparse=False), to_dense(), dequantize()",
    "device": "move model and data to the CPU, or call the function without wrapping it",
    "dispatch_mode": "leave the dispatch mode or functorch transform before calling the step",
    "generator_seek": "call manual_seed(), set_rng_state() or fork_rng() between steps",
    "untracked_generator": "let the step reach the generator by its closure, or draw from the default one",
    "unreplayable_op": "call the op outside the step, or compute the same with torch's own ops",
    "unstable_op_stream": "make the step issue the same ops every time: wrap each branch as a step of its own, "
                          "and pad inputs to few shapes",
    "scalar_varies": "compute on the number with Python's operators, min, max, abs, round and `math`'s exp, log, pow, sqrt, sin, cos, "
                     "floor, ceil and trunc, which are followed; where it decides, pass the decision as a bool; or pass it as a tensor",
    "optimizer_unsupported": "wrap the rest, and step the optimizer after it",
    "hyperparameter_changed": "compute it from numbers that are followed (an argument, a counter, what stood there), or "
                              "change it after the step",
    "unconsumed_graph": "call backward() inside the step, detach() arguments and results, or run the step under "
                        "torch.no_grad()",
    "trial_diverged": "look for what the step does besides torch ops (docs/blind_spots.md); if there is nothing, "
                      "please report it with the trace",
    "audit_diverged": "look for state that only eager steps advance, and pass it as an argument "
                      "(docs/blind_spots.md)",
    "too_many_variants": "let what the guard names take few values: pad inputs to few shapes, pass the decision that a number "
                         "makes as a bool, keep one object in place of a new one in each call; or raise max_variants",
    "nested_step": "nothing, if the outer step replays; where it runs eagerly, the inner one has a life of its own",
    "replay_threw": "mend what the message names, and call invalidate(why) to record the step anew",
    "no_interceptor": "another library has taken the dispatch key `Fake` in this process; load it without",
    "recording_failed": "report this with the message and the versions; the step ran eagerly and is right",
    "trial_skipped": "free memory, or wrap with verify={\"first\": False} to trust plans without a trial",
    "host_effect": "do it between steps, with what the step returns, or look at tensors with steptape.observe(); what is to "
                   "be read anew in each call, pass as an argument or declare with steptape.host(function)",
    "host_random": "draw with torch, or declare the number: u = steptape.host(random.random), and u() in the step",
    "opaque_argument": "pass tensors, arrays, numbers, strings and containers of them; let the step reach other objects "
                       "by its closure",
    "nondeterministic_op": "use a deterministic op (torch.use_deterministic_algorithms names some), or one thread; "
                           "or wrap with determinism=\"listed\"",
}


_ON_ONE_STREAM = "order streams, record events and launch graphs between steps, and call the step on one stream"
_AS_A_TENSOR = "return the tensor, and call numpy() on it after the step"
_BY_READING = (  # (code, what the reason says, remedy)
    ("written_outside", "`numpy` gives", _AS_A_TENSOR),
    ("host_effect", "the step returns a numpy", _AS_A_TENSOR),
    ("host_effect", "the step uses a stream", _ON_ONE_STREAM),
    ("device", "the op is given to another stream", _ON_ONE_STREAM),
    ("host_effect", "what the step returns went", "return the number or tensor itself, and make a text of it after the step"),
    ("host_effect", "that is held elsewhere too", "return a copy: dict(logs), list(items)"),
    ("host_effect", "the step prints or writes", "show what the step returns after the call, or a tensor after each call with "
                                                 "steptape.observe(tensor, function)"),
    ("host_effect", "the step takes a lock", "take it around the call of the step"),
    ("host_effect", "reads the clock", "measure around the call of the step, or declare it: now = steptape.host(time.time), and "
                                       "now() in the step"),
    ("host_effect", "requires grad", "write into x.clone(), and leave the argument as it is"),
    ("host_effect", "is another one in each call", "compare or mark tensors before the step, and pass the answer as an argument"),
    ("host_effect", "which tensor it is", "decide before the step, and pass the decision as a bool"),
    ("too_many_variants", ".data_ptr", "copy rows into tensors of their own: x[i:j].clone()"),
    ("too_many_variants", ".size(", "pad inputs to few shapes, or raise max_variants"),
    ("unconsumed_graph", "what the step leaves in", "keep tensor.detach() there"),
    ("unconsumed_graph", "results[", "return loss.detach(), or loss.item()"),
    ("optimizer_unsupported", "LBFGS", "closure = steptape.wrap(closure); optimizer.step(closure)"),
    ("rebound_tensor", ".grad", "let the step begin with the gradients that the last call left, and call zero_grad() in it"),
    ("rebound_tensor", "the gradient of", "let the step begin with the gradients that the last call left, and call zero_grad() in it"),
    ("tensor_kind", "DTensor", "train with DistributedDataParallel, or call the step as it is: what fully_shard and tensor parallelism "
                               "share out is not replayed"),
    ("unreplayable_op", "`_c10d_functional::", "exchange tensors in place, as dist.all_reduce(tensor) does"),
    ("unreplayable_op", "`c10d::", "exchange them by a collective, or between steps"),
    ("host_read", "array of NumPy", "make a tensor of it with torch.as_tensor() in the step, or pass what the host reads as a number"),
)


def remedy_for(code, reason, otherwise):
    for of, says, remedy in _BY_READING:
        if of == code and says in reason:
            return remedy
    return REMEDIES.get(code, otherwise)


def in_words(text, names):
    """`names`: what the program calls each input."""
    def named(match):
        k = int(match[1])
        return names[k] if k < len(names) and names[k] else match[0]

    text = re.sub(r'argument: inputs\[(\d+)\]: ".*?" → ".*?"(?= \(|;|$)', lambda match: (
        match[0] if int(match[1]) < len(names) and names[int(match[1])] else
        "argument: the arguments are of another kind or structure"), text, flags=re.S)
    text = re.sub(r"inputs\[(\d+)\]", named, text)
    text = re.sub(r"predicate: (.+?): zero → \S+", r"condition: \1 is true now", text)
    text = re.sub(r"predicate: (.+?): not zero → \S+", r"condition: \1 is false now", text)
    return text.replace("differs from variant 0 in: nothing that a recording holds",
                        "differs from variant 0 in: what it read of the program")
