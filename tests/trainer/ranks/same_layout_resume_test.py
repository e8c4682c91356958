"""Twenty steps, against ten and ten more by another launch: same_layout_resume_test.py --program TRAINER -- MPIEXEC...

Under every layout, the metrics of steps 11 to 20 are the same numbers and the checkpoints of step 20 the same bytes.
"""
import argparse
import array
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CONFIG = """
[run]
name = "resume"
dir = "run"
[model]
vocab_size = 53
num_layers = 4
hidden_size = 16
num_heads = 4
num_kv_heads = 2
seq_len = 16
qk_norm = true
dropout = 0.1
[train]
steps = 20
global_batch_size = 8
micro_batch_size = 1
eval_every = 5
eval_steps = 1
[optimizer]
lr = 1e-2
[lr_schedule]
warmup_steps = 4
[data]
train = "../tokens.bin"
valid_fraction = 0.1
[checkpoint]
every_steps = 10
keep_last = 0
"""

EXPERTS = ["model.moe.num_experts=4", "model.moe.balance=bias", "model.moe.layers=every:2"]

# Settings by what they try, and ranks. Where a layout has no axis of its own, dp fills the ranks.
LAYOUTS = {
    "one rank": (1, []),
    "tp": (2, ["parallel.tp=2"]),
    "tp with more ranks than kv heads": (4, ["parallel.tp=4"]),
    "tp_sequence": (2, ["parallel.tp=2", "parallel.tp_sequence=true"]),
    "sp ring": (2, ["parallel.sp=2", "parallel.sp_method=ring"]),
    "sp ulysses": (2, ["parallel.sp=2", "parallel.sp_method=ulysses"]),
    "sp all_gather": (2, ["parallel.sp=2", "parallel.sp_method=all_gather"]),
    "dp": (2, []),
    "ZeRO 1": (2, ["parallel.zero_stage=1"]),
    "ZeRO 2": (2, ["parallel.zero_stage=2"]),
    "ZeRO 3": (2, ["parallel.zero_stage=3"]),
    "dp_out": (4, ["parallel.dp_out=2", "parallel.zero_stage=3"]),
    "pp 1f1b": (2, ["parallel.pp=2"]),
    "pp interleaved": (2, ["parallel.pp=2", "parallel.schedule=interleaved"]),
    "pp zb_v": (2, ["parallel.pp=2", "parallel.schedule=zb_v"]),
    "pp dualpipe_v": (2, ["parallel.pp=2", "parallel.schedule=dualpipe_v"]),
    "ep": (2, ["parallel.ep=2", *EXPERTS]),
    "expert_tp": (2, ["parallel.expert_tp=2", *EXPERTS]),
    "no accumulation": (2, ["train.micro_batch_size=4", "train.recompute=full"]),
    "bf16": (2, ["precision.compute=bf16", "parallel.zero_stage=1"]),
    "fp64": (2, ["precision.compute=fp64", "parallel.zero_stage=3"]),
    "tp, pp, dp, ep and expert_tp": (8, ["parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=3", "parallel.ep=2",
                                         "parallel.expert_tp=2", *EXPERTS]),
    "tp, sp, pp, dp and ep": (16, ["parallel.tp=2", "parallel.sp=2", "parallel.pp=2", "parallel.zero_stage=3",
                                   "parallel.ep=4", *EXPERTS]),
}

# Of a line of metrics: times, rates, and high-water marks of memory.
MAY_DIFFER = {"tokens_per_second", "step_ms", "mfu", "save_stall_ms", "memory_bytes"}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


OPTIONS = arguments()


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(parent, name), folder)
                  for parent, _, names in os.walk(folder) for name in names)


class SameLayoutResume(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(self.path("tokens.bin"), "wb") as file:
            array.array("H", (i * i % 53 for i in range(4_000))).tofile(file)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def command(self, num_ranks, settings):
        overrides = [f"--set={setting}" for setting in settings]
        return OPTIONS.mpiexec + ["-np", str(num_ranks), OPTIONS.program, "train", "run.toml", *overrides]

    def make_place(self, place):
        """A working folder: the run's own is run/ below it, so that two runs have the same config."""
        os.mkdir(self.path(place))
        with open(self.path(place, "run.toml"), "w", encoding="utf-8") as file:
            file.write(CONFIG)

    def train(self, place, num_ranks, settings):
        done = subprocess.run(self.command(num_ranks, settings), cwd=self.path(place), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def metrics(self, place):
        with open(self.path(place, "run", "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["step"] for line in lines], list(range(1, 21)))
        self.assertEqual(sum("valid_loss" in line for line in lines), 4)
        return [{key: value for key, value in line.items() if key not in MAY_DIFFER} for line in lines]

    def checkpoint(self, place, step=20):
        return self.path(place, "run", "checkpoints", f"step_{step:08}")

    def go_on_from_step_10(self, num_ranks, settings):
        """As if the straight run had been killed right after its save at step 10."""
        self.make_place("resumed")
        shutil.copytree(self.path("straight", "run"), self.path("resumed", "run"))
        shutil.rmtree(self.checkpoint("resumed"))
        self.assertIn("at step 10", self.train("resumed", num_ranks, settings))

    def expect_same(self):
        for straight, resumed in zip(self.metrics("straight"), self.metrics("resumed")):
            self.assertEqual(straight, resumed)
        straight, resumed = self.checkpoint("straight"), self.checkpoint("resumed")
        self.assertEqual(files_below(straight), files_below(resumed))
        for name in files_below(straight):
            self.assertTrue(read_bytes(os.path.join(straight, name)) == read_bytes(os.path.join(resumed, name)),
                            f"{name} has other bytes")
        diff = [OPTIONS.program, "checkpoint", "diff", straight, resumed]
        subprocess.run(diff, stdout=subprocess.DEVNULL, check=True)

    def check(self, num_ranks, settings):
        self.make_place("straight")
        self.train("straight", num_ranks, settings)
        self.go_on_from_step_10(num_ranks, settings)
        self.expect_same()

    def test_every_layout_goes_on_as_if_it_had_not_stopped(self):
        for name, (num_ranks, settings) in LAYOUTS.items():
            with self.subTest(name):
                try:
                    self.check(num_ranks, settings)
                finally:
                    for place in ("straight", "resumed"):
                        shutil.rmtree(self.path(place), ignore_errors=True)

    def test_a_finished_run_that_is_given_more_steps_goes_on_as_if_it_always_had_them(self):
        num_ranks, settings = LAYOUTS["tp, pp, dp, ep and expert_tp"]
        settings = [*settings, "lr_schedule.kind=constant"]  # others look at the number of steps
        self.make_place("straight")
        self.make_place("resumed")

        self.train("straight", num_ranks, settings)
        self.train("resumed", num_ranks, [*settings, "train.steps=10"])
        self.train("resumed", num_ranks, settings)

        self.expect_same()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
