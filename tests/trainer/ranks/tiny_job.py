"""A tiny run of many ranks for tests that hurt it: what it is told, its processes, and what it leaves in its folder."""
import array
import contextlib
import json
import os
import re
import signal
import subprocess
import time

CONFIG = """
[run]
name = "tiny"
dir = "{folder}/run"
[model]
vocab_size = 64
num_layers = 2
hidden_size = 32
num_heads = 4
seq_len = 32
[train]
steps = 6
global_batch_size = 4
micro_batch_size = 1
[checkpoint]
every_steps = 2
keep_last = 2
[data]
train = "{folder}/tokens.bin"
"""


class Job:
    """One run in one folder, started as often as one likes."""

    def __init__(self, folder, mpiexec, program, shim, num_ranks=2, settings=()):
        self.folder = folder
        self.program = program
        self.shim = shim
        self.num_ranks = num_ranks
        self.config = os.path.join(folder, "tiny.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(folder=folder))
        with open(os.path.join(folder, "tokens.bin"), "wb") as file:
            array.array("H", (i * i % 61 for i in range(20_000))).tofile(file)
        self.launcher = mpiexec + ["-np", str(num_ranks), program]
        self.settings = ["--set=" + setting for setting in settings]

    # ---- processes

    def start(self, *settings, fault="", output=None, **options):
        """All output goes to output.txt, or to that open file."""
        environment = dict(os.environ)
        if fault:
            environment.update(STORAGE_FAULT=fault, LD_PRELOAD=self.shim)
        command = self.launcher + ["train", self.config] + self.settings + ["--set=" + s for s in settings]
        with contextlib.nullcontext(output) if output else open(self.path("output.txt"), "wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, **options)

    def run(self, *settings, fault="", **options):
        """To its end; gives the exit code."""
        return self.start(*settings, fault=fault, **options).wait(timeout=100)

    def ranks_below(self, launcher):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if parent_of(pid) != launcher:
                continue
            try:
                if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(self.program):
                    found.append(int(pid))
            except OSError:
                pass
        return sorted(found)

    def checkpoint_command(self, *arguments):
        """Exit code and output of `trainer checkpoint ...`."""
        done = subprocess.run([self.program, "checkpoint", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
        return done.returncode, done.stdout

    def damage(self):
        """What `checkpoint verify` says against the checkpoints that are there; empty: all are good."""
        verdicts = [self.checkpoint_command("verify", self.path("run/checkpoints", name))
                    for name in self.checkpoints().values()]
        return "\n".join(text for code, text in verdicts if code != 0)

    # ---- what it leaves

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def text(self, *parts):
        try:
            with open(self.path(*parts), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def output(self):
        return self.text("output.txt")

    def names(self):
        """In the folder of checkpoints."""
        try:
            return sorted(os.listdir(self.path("run/checkpoints")))
        except FileNotFoundError:
            return []

    def checkpoints(self):
        """Names of whole checkpoints by step."""
        return {int(name[5:]): name for name in self.names() if re.fullmatch(r"step_\d{8}", name)}

    def metrics(self):
        """Whole lines only: a run that was killed may have left half of one."""
        lines = self.text("run/metrics.jsonl").split("\n")[:-1]
        return [json.loads(line) for line in lines]


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_until(condition, seconds, every=0.002):
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
