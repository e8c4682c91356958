"""`trainer verify` over a grid of layouts:
verify_matrix_test.py --program TRAINER --ranks 4 [--dtype fp32] -- MPIEXEC [FLAG...]

Every (tp, dp, zero_stage, tp_sequence) with tp * dp = the ranks has to exit with 0, and every schedule of a pipeline over
all ranks and over half of them, beside tp and beside dp, and every sp_method in the same places; a difference is exit 7 on all.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest

CONFIG = """
[run]
name = "verify_matrix"
[model]
vocab_size = 53
num_layers = 2
hidden_size = 20
num_heads = 8
num_kv_heads = 2
head_dim = 4
ffn_hidden_size = 24
seq_len = 16
qk_norm = true
dropout = 0.1
[train]
steps = 3
global_batch_size = 16
micro_batch_size = 1
[data]
train = ["synthetic"]
"""


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--dtype", default="fp64")
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


OPTIONS = arguments()


def layouts():
    """Every way to make up the ranks, as --set values."""
    for tp in range(1, OPTIONS.ranks + 1):
        if OPTIONS.ranks % tp:
            continue
        for zero_stage in range(4):
            for tp_sequence in ("false", "true"):
                yield {"tp": tp, "dp": OPTIONS.ranks // tp, "zero_stage": zero_stage, "tp_sequence": tp_sequence}


def sequences():
    """Every method over all ranks and beside tp, dp and pp, with ZeRO stages in turn."""
    half = OPTIONS.ranks // 2
    for number, method in enumerate(("ring", "ulysses", "all_gather")):
        for place, layout in enumerate(({"sp": OPTIONS.ranks}, {"sp": half, "dp": 2}, {"sp": half, "pp": 2},
                                        {"sp": half, "tp": 2}, {"sp": half, "tp": 2, "tp_sequence": "true"})):
            yield {**layout, "sp_method": method, "zero_stage": (number + place) % 4}


SCHEDULES = ("gpipe", "1f1b", "interleaved", "bfs", "zb_h1", "interleaved_zb", "zb_v", "dualpipe_v")


def pipelines():
    """Every schedule, with ZeRO stages in turn."""
    half = OPTIONS.ranks // 2
    for number, schedule in enumerate(SCHEDULES):
        for pp, tp in ((OPTIONS.ranks, 1), (half, 2), (half, 1)):
            dp = OPTIONS.ranks // pp // tp
            # dualpipe_v needs two micro-batches a rank
            yield {"pp": pp, "tp": tp, "dp": dp, "schedule": schedule, "zero_stage": (number + tp) % 4 if dp > 1 else 0,
                   "zero_reshard": ("forward", "never", "stage")[number % 3]}


class VerifyMatrix(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.config = os.path.join(self.folder.name, "verify_matrix.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG)

    def verify(self, layout, *more):
        """Exit codes of all ranks, what was printed. A shell around each rank tells its code."""
        command = [OPTIONS.program, "verify", self.config, "--dtype", OPTIONS.dtype, "--steps", "2", *more]
        command += [f"--set=parallel.{key}={value}" for key, value in layout.items()]
        tell = ["sh", "-c", '"$@"; echo "rank ended with $?"', "sh"]
        done = subprocess.run(OPTIONS.mpiexec + ["-np", str(OPTIONS.ranks)] + tell + command, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        return [int(code) for code in re.findall(r"rank ended with (\d+)", done.stdout)], done.stdout

    def test_every_layout_computes_what_one_rank_computes(self):
        for layout in layouts():
            with self.subTest(**layout):
                codes, said = self.verify(layout)
                self.assertEqual(codes, [0] * OPTIONS.ranks, said)
                self.assertIn(f"{OPTIONS.ranks} ranks against one", said)

    def test_every_cut_of_sequences_computes_what_one_rank_computes(self):
        for layout in sequences():
            for window in ("model.sliding_window=0", "model.sliding_window=5"):
                with self.subTest(window=window, **layout):
                    codes, said = self.verify(layout, "--set", window)
                    self.assertEqual(codes, [0] * OPTIONS.ranks, said)

    def test_every_schedule_computes_what_one_rank_computes(self):
        for layout in pipelines():
            with self.subTest(**layout):
                codes, said = self.verify(layout)
                self.assertEqual(codes, [0] * OPTIONS.ranks, said)

    def test_a_difference_is_exit_7_on_every_rank_and_one_table(self):
        codes, said = self.verify({"tp": 2, "zero_stage": 3}, "--tolerance", "1e-30")
        self.assertEqual(codes, [7] * OPTIONS.ranks, said)
        self.assertEqual(said.count("worst at"), 1, said)
        self.assertIn("FAILED", said)

    def test_the_launcher_tells_of_a_difference(self):
        command = [OPTIONS.program, "verify", self.config, "--tolerance", "1e-30", "--set=parallel.tp=2"]
        done = subprocess.run(OPTIONS.mpiexec + ["-np", str(OPTIONS.ranks)] + command, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=120, check=False)
        self.assertEqual(done.returncode, 7)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
