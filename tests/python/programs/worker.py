"""A process that runs programs, one after the other: paths of files on stdin, outcomes as lines of JSON on stdout."""
import json
import os
import sys
import tempfile
import traceback


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is no answer
    import torch
    import torch._dynamo  # which the first optimizer would bring in
    torch.set_num_threads(1)
    from .twin import ON_DEVICE, run
    if ON_DEVICE:  # the way that no mode and no code of the program's shows
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        with tempfile.TemporaryDirectory(prefix="program-") as folder:
            try:
                outcome = run(json.loads(line), folder)
            except BaseException:
                outcome = {"outcome": "broken", "what": traceback.format_exc(limit=-3)}
        print(json.dumps(outcome), file=answers, flush=True)


if __name__ == "__main__":
    main()
