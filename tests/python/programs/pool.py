"""Runs programs in worker processes, which are replaced when they die or take too long."""
import concurrent.futures
import json
import os
import pathlib
import queue
import selectors
import signal
import subprocess
import sys
import tempfile

LIMIT_S = 120  # of one program
PROGRAMS_A_WORKER = 200

HERE = pathlib.Path(__file__).resolve().parent


class Worker:
    def __init__(self):
        self.log = tempfile.TemporaryFile("w+")
        paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        if environment.get("STEPTAPE_PROGRAMS_DEVICE") == "cuda" and environment.get("STEPTAPE_SIMULATED_CUDA"):
            environment["LD_PRELOAD"] = environment["STEPTAPE_SIMULATED_CUDA"]
        self.process = subprocess.Popen([sys.executable, "-m", "programs.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=environment)
        self.count = 0
        self._answer(LIMIT_S * 3)

    def run(self, text):
        """The outcome; `crashed` or `hung` when the process is of no further use."""
        self.count += 1
        try:
            self.process.stdin.write(json.dumps(text) + "\n")
            self.process.stdin.flush()
            answer = self._answer(LIMIT_S)
        except (BrokenPipeError, EOFError):
            return {"outcome": "crashed", "what": f"{self._ending()}: {self._last_words()}"}
        except TimeoutError:
            self.close()
            return {"outcome": "hung", "what": f"not done after {LIMIT_S} s"}
        return json.loads(answer)

    def _answer(self, limit_s):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise TimeoutError
        answer = self.process.stdout.readline()
        if not answer:
            raise EOFError
        return answer

    def _ending(self):
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    def _last_words(self):
        self.log.seek(0)
        return self.log.read()[-600:]

    @property
    def is_usable(self):
        return self.process.poll() is None and self.count < PROGRAMS_A_WORKER

    def close(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            stream.close()


class Pool:
    def __init__(self, jobs=2):
        self.jobs = jobs
        self.idle = queue.SimpleQueue()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while not self.idle.empty():
            self.idle.get().close()

    def run(self, text):
        try:
            worker = self.idle.get_nowait()
        except queue.Empty:
            worker = Worker()
        outcome = worker.run(text)
        if worker.process.returncode is None and worker.is_usable:
            self.idle.put(worker)
        elif worker.process.returncode is None or outcome["outcome"] == "crashed":
            worker.close()
        return outcome

    def map(self, texts):
        """(index, outcome) of each text, as they are done."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as threads:
            waiting = {threads.submit(self.run, text): index for index, text in enumerate(texts)}
            for done in concurrent.futures.as_completed(waiting):
                yield waiting[done], done.result()
