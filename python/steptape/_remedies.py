"""What to change in a Python step so that it can be replayed, by refusal code; docs/refusals.md has the causes."""

REMEDIES = {
    "host_read": "read it with item(), which is followed, and not with float() or int(); return the value from "
                 "the step, or look at it with steptape.observe(tensor, function); keep "
                 "decisions on tensors: torch.where(), clamp() or a mask; or wrap with host_reads=\"observe\" "
                 "if the step only looks",
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
    "rebound_tensor": "write tracked tensors in place with copy_() under no_grad() instead of assigning new ones",
    "tensor_kind": "use dense strided tensors in the step: Embedding(sparse=False), to_dense(), dequantize()",
    "device": "move model and data to the CPU, or call the function without wrapping it",
    "dispatch_mode": "leave the dispatch mode or functorch transform before calling the step",
    "generator_seek": "call manual_seed(), set_rng_state() or fork_rng() between steps",
    "untracked_generator": "let the step reach the generator by its closure, or draw from the default one",
    "unreplayable_op": "call the op outside the step, or compute the same with torch's own ops",
    "unstable_op_stream": "make the step issue the same ops every time: wrap each branch as a step of its own, "
                          "and pad inputs to few shapes",
    "scalar_varies": "declare the number with steptape.host(function), or pass it to the step as an argument",
    "optimizer_unsupported": "wrap the rest, and step the optimizer behind it",
    "hyperparameter_changed": "move scheduler.step() and other changes of hyperparameters behind the step",
    "unconsumed_graph": "call backward() inside the step, detach() arguments and results, or run the step under "
                        "torch.no_grad()",
    "trial_diverged": "look for what the step does besides torch ops (docs/blind_spots.md); if there is nothing, "
                      "please report it with the trace",
    "audit_diverged": "look for state that only eager steps advance, and pass it as an argument "
                      "(docs/blind_spots.md)",
    "too_many_variants": "pad inputs to few shapes, pass changing numbers as tensors, or raise max_variants",
    "nested_step": "nothing, if the outer step replays; where it runs eagerly, the inner one has a life of its own",
    "replay_threw": "mend what the message names, and call invalidate(why) to record the step anew",
    "no_interceptor": "another library has taken the dispatch key `Fake` in this process; load it without",
    "recording_failed": "report this with the message and the versions; the step ran eagerly and is right",
    "trial_skipped": "free memory, or wrap with verify={\"first\": False} to trust plans without a trial",
    "host_effect": "do it between steps, with what the step returns; look at tensors with steptape.observe(); "
                   "let a counter that the step uses be a steptape.host(function)",
    "host_random": "draw with torch, or declare the number: u = steptape.host(random.random), and u() in the step",
    "opaque_argument": "pass tensors, numbers, strings and containers of them; let the step reach other objects "
                       "by its closure",
    "nondeterministic_op": "use a deterministic op (torch.use_deterministic_algorithms names some), or one thread; "
                           "or wrap with determinism=\"listed\"",
}
