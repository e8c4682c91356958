"""Checkpoints of several ranks, opened with h5py:
h5py_test.py --python PYTHON --program TRAINER --shards WRITE_SHARDS -- MPIEXEC [FLAG...]

Every tensor of index.h5, by its name, is what `trainer checkpoint consolidate` writes, and of the dtype and shape that
`inspect` prints, also after the folder was moved. Skipped where PYTHON has no h5py."""
import argparse
import array
import os
import re
import subprocess
import sys
import tempfile
import unittest

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
    parser.add_argument("--python", required=True, help="whose h5py reads")
    parser.add_argument("--program", required=True)
    parser.add_argument("--shards", required=True, help="the program write_shards")
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


def skip(why):
    print(why)
    sys.exit(77)


OPTIONS = arguments()
if os.path.abspath(sys.executable) != os.path.abspath(OPTIONS.python):
    if not os.path.exists(OPTIONS.python):
        skip(f"there is no {OPTIONS.python}; scripts/venv.sh makes build/venv")
    os.execv(OPTIONS.python, [OPTIONS.python, *sys.argv])

try:
    import h5py
    import numpy
except ImportError:
    skip(f"{OPTIONS.python} has no h5py")
print(f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}", flush=True)

# What h5py makes of each dtype of ours. All values of bf16 are values of float32.
SHOWN_AS = {"fp32": "float32", "bf16": "float32", "fp64": "float64", "int32": "int32", "int64": "int64"}


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
        self.assertEqual(self.described(checkpoint), {name: (str(x.dtype), x.shape) for name, x in whole.items()})

        self.expect_same(tensors_in(os.path.join(checkpoint, "index.h5")), whole)
        os.rename(checkpoint, self.path("moved"))
        self.expect_same(tensors_in(self.path("moved/index.h5")), whole)

    def described(self, checkpoint):
        """By name: how h5py should show the dtype, and the shape, as `inspect` prints them."""
        rows = re.findall(r"^(\S+/\S+) +(\w+) +\[([\d, ]*)\]", self.run_trainer(1, "checkpoint", "inspect", checkpoint),
                          re.MULTILINE)
        return {name: (SHOWN_AS[dtype], tuple(map(int, shape.split(", ")))) for name, dtype, shape in rows}

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

    def test_every_dtype_in_shards(self):
        subprocess.run([OPTIONS.shards, self.folder], check=True)

        tensors = tensors_in(self.path("step_00000007/index.h5"))

        described = self.described(self.path("step_00000007"))
        self.assertEqual(len(described), 5)
        self.assertEqual({name: (str(x.dtype), x.shape) for name, x in tensors.items()}, described)
        self.assertEqual(str(tensors["weights/layers.0.attention.q.weight"].dtype), "float32", "bf16")
        for name, found in tensors.items():
            with open(self.path("dump/" + name), "rb") as file:
                dump = file.read()
            if name == "weights/layers.0.attention.q.weight":
                expected = (numpy.frombuffer(dump, "<u2").astype("<u4") << 16).view("<f4")
            else:
                expected = numpy.frombuffer(dump, found.dtype)
            numpy.testing.assert_array_equal(found, expected.reshape(found.shape), err_msg=name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
