"""Checkpoints of several ranks, opened with h5py: h5py_test.py --program TRAINER -- MPIEXEC [FLAG...]

Every tensor of index.h5, by its name, is what `trainer checkpoint consolidate` writes, also after the folder was moved,
and both are the bytes in the shards. Skipped where h5py is missing."""
import argparse
import array
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import h5py
    import numpy
except ImportError:
    print("h5py is not installed")
    sys.exit(77)

CONFIG = """
[run]
name = "h5py"
dir = "{folder}/run"
[model]
vocab_size = 67
num_layers = 2
hidden_size = 32
num_heads = 4
seq_len = 32
[train]
steps = 2
global_batch_size = 4
micro_batch_size = 1
[data]
train = "{folder}/tokens.bin"
[checkpoint]
every_steps = 0
"""


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


OPTIONS = arguments()


def tensors_in(path):
    """Every dataset below a group, as h5py shows it; the program's own tables left out."""
    tensors = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset) and "/" in name and not name.startswith("_tables/"):
            tensors[name] = item[...]

    with h5py.File(path, "r") as file:
        file.visititems(keep)
    return tensors


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(self.path("run.toml"), "w", encoding="utf-8") as file:
            file.write(CONFIG.format(folder=self.folder))
        with open(self.path("tokens.bin"), "wb") as file:
            array.array("H", (i * i % 61 for i in range(20_000))).tofile(file)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_trainer(self, num_ranks, *words):
        command = [OPTIONS.program, *words]
        if num_ranks > 1:
            command = OPTIONS.mpiexec + ["-np", str(num_ranks)] + command
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def check(self, num_ranks, *settings):
        overrides = [word for setting in settings for word in ("--set", setting)]
        self.run_trainer(num_ranks, "train", self.path("run.toml"), *overrides)
        checkpoint = self.path("run/checkpoints/step_00000002")
        self.run_trainer(1, "checkpoint", "consolidate", checkpoint, self.path("whole.h5"))
        whole = tensors_in(self.path("whole.h5"))
        self.assertIn("weights/embedding.token.weight", whole)
        self.assertEqual(whole["weights/embedding.token.weight"].shape, (67, 32))

        self.expect_same(tensors_in(os.path.join(checkpoint, "index.h5")), whole)
        os.rename(checkpoint, self.path("moved"))
        self.expect_same(tensors_in(self.path("moved/index.h5")), whole)

    def expect_same(self, found, whole):
        self.assertEqual(sorted(found), sorted(whole))
        for name, values in whole.items():
            self.assertEqual(found[name].dtype, values.dtype, name)
            self.assertTrue(numpy.isfinite(values).all(), name)
            numpy.testing.assert_array_equal(found[name], values, err_msg=name)

    def test_one_rank(self):
        self.check(1)

    def test_columns_and_ranges(self):
        self.check(4, "parallel.tp=2", "parallel.zero_stage=3", "precision.compute=bf16")

    def test_a_pipeline_in_fp64(self):
        self.check(4, "parallel.pp=2", "parallel.zero_stage=1", "precision.compute=fp64")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
