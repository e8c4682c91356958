#!/usr/bin/env python3
"""Checkpoints on one disk: how fast a save is beside raw O_DIRECT writes of as many bytes, how long training stalls for
one that is written while it goes on, and how fast the same and another layout load, beside reading the bytes once.

Needs build/release/bin/trainer (scripts/build.sh release). Files go to --dir, which should be on the disk to measure.
"""
import argparse
import array
import json
import mmap
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TRAINER = os.path.join(ROOT, "build", "release", "bin", "trainer")
BLOCK = 16 << 20
# About 60 million weights: 0.7 GB of state.
CONFIG = """
[run]
name = "checkpoint"
[model]
vocab_size = 8192
num_layers = 12
hidden_size = 640
num_heads = 10
seq_len = 64
[train]
steps = 4
global_batch_size = 2
micro_batch_size = 1
[checkpoint]
every_steps = 0
keep_last = 2
"""


def environment():
    odd = ("OPENBLAS_", "OMP_", "GOMP_", "OMPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(odd)}
    return kept | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def train(folder, num_ranks, **values):
    command = ["mpirun", "-np", str(num_ranks), "--bind-to", "core", TRAINER, folder + "/checkpoint.toml"]
    for key, value in ({"run.dir": folder + "/run"} | values).items():
        command += ["--set", f"{key.replace('__', '.')}={value}"]
    begin = time.monotonic()
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def raw_write_rate(folder, num_bytes):
    """Bytes per second of O_DIRECT writes of 16 MiB, and the sync."""
    path = os.path.join(folder, "raw")
    buffer = mmap.mmap(-1, BLOCK)
    buffer.write(os.urandom(1 << 20) * (BLOCK >> 20))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    os.posix_fallocate(fd, 0, num_bytes)
    begin = time.monotonic()
    for offset in range(0, num_bytes // BLOCK * BLOCK, BLOCK):
        os.pwrite(fd, buffer, offset)
    os.fsync(fd)
    seconds = time.monotonic() - begin
    os.close(fd)
    os.remove(path)
    return num_bytes // BLOCK * BLOCK / seconds


def saved_bytes(folder):
    step = max(name for name in os.listdir(folder + "/run/checkpoints") if name.startswith("step_"))
    return sum(os.path.getsize(os.path.join(root, name))
               for root, _, names in os.walk(os.path.join(folder, "run/checkpoints", step)) for name in names)


def save_seconds(folder):
    """Of the last save: from its begin to its publication, as log.txt tells."""
    with open(folder + "/run/log.txt", encoding="utf-8") as file:
        found = re.findall(r"saved \S+ in ([\d.]+) s", file.read())
    return float(found[-1])


def stall_ms(folder):
    """What a step in which a save began, or went on, took longer than others: its 95th percentile."""
    with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
        stalls = [json.loads(line)["save_stall_ms"] for line in file]
    return statistics.quantiles(stalls, n=20)[-1] if len(stalls) > 1 else stalls[0]


def write_inputs(folder):
    with open(folder + "/checkpoint.toml", "w", encoding="utf-8") as file:
        file.write(CONFIG + f'[data]\ntrain = "{folder}/tokens.bin"\n')
    random.seed(1)
    with open(folder + "/tokens.bin", "wb") as file:
        array.array("H", (random.randrange(8192) for _ in range(100_000))).tofile(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    os.chdir(ROOT)
    for _ in range(args.repeats):
        folder = tempfile.mkdtemp(prefix="trainer_bench_", dir=args.dir)
        try:
            write_inputs(folder)
            train(folder, 2, parallel__dp=2, parallel__zero_stage=1, checkpoint__async="false")
            size, seconds = saved_bytes(folder), save_seconds(folder)
            raw = raw_write_rate(folder, size)
            print(f"save: {size / 1e6:.0f} MB in {seconds:.2f} s, {size / seconds / 1e9:.2f} GB/s; raw O_DIRECT "
                  f"{raw / 1e9:.2f} GB/s; ratio {size / seconds / raw:.2f}", flush=True)
            train(folder, 2, parallel__dp=2, parallel__zero_stage=1, train__steps=16, checkpoint__every_steps=4)
            print(f"stall of a step while a checkpoint is written, 95th percentile: {stall_ms(folder):.1f} ms", flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
