#!/usr/bin/env python3
"""Checkpoints on one disk, of a model of about 110 million weights with its optimizer (1.3 GB) on two ranks:

- a save, hashes included, beside O_DIRECT writes of as many bytes by one and by two writers (the faster counts);
- loads by the layout that saved and by others, beside reading the same files once with two readers a rank;
- torch.distributed.checkpoint with the same tensors on as many ranks;
- how long training stands still for a save that is written while it goes on.

All that is compared alternates inside each repeat. Before each load the page cache is emptied (as root through
/proc/sys/vm/drop_caches, else file by file). Needs build/release/bin/trainer (scripts/build.sh release), and a Python
with torch, which is installed into build/bench-venv where there is none. Files go to --dir, on the disk to measure.
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
import sys
import tempfile
import threading
import time

from run_cpu import python_with_torch

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TRAINER = os.path.join(ROOT, "build", "release", "bin", "trainer")
TORCH = os.path.join(ROOT, "scripts", "bench", "torch_checkpoint.py")
BLOCK = 16 << 20
RANKS = 2
CONFIG = """
[run]
name = "checkpoint"
[model]
vocab_size = 32000
num_layers = {num_layers}
hidden_size = 768
num_heads = 12
seq_len = 64
tie_embeddings = true
[train]
steps = 3
global_batch_size = 2
micro_batch_size = 1
[checkpoint]
every_steps = 1
keep_last = 1
async = false
[parallel]
dp = 2
zero_stage = 1
[data]
train = "{folder}/tokens.bin"
"""
SAVED = {"parallel.dp": 2, "parallel.zero_stage": 1}
LAYOUTS = {"same (dp=2, ZeRO-1)": SAVED,
           "tp=2": {"parallel.dp": 1, "parallel.tp": 2, "parallel.zero_stage": 0},
           "pp=2": {"parallel.dp": 1, "parallel.pp": 2, "parallel.zero_stage": 0},
           "dp=2, ZeRO-0": {"parallel.dp": 2, "parallel.zero_stage": 0}}


# ---- programs


def environment():
    odd = ("OPENBLAS_", "OMP_", "GOMP_", "OMPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(odd)}
    return kept | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def train(folder, run, values):
    """The text of the run's log."""
    command = ["mpirun", "-np", str(RANKS), "--bind-to", "none", TRAINER, folder + "/checkpoint.toml"]
    for key, value in ({"run.dir": f"{folder}/{run}"} | values).items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/{run}/log.txt", encoding="utf-8") as file:
        return file.read()


def torch_seconds(args, folder, action, layout):
    command = [args.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), TORCH, action,
               folder + "/torch", "--shapes", folder + "/shapes.json", "--layout", layout]
    done = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True)
    return float(re.search(r"seconds ([\d.]+)", done.stdout)[1])


# ---- the disk


def files_below(folder):
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]


def empty_page_cache(folder):
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
    except OSError:
        for path in files_below(folder):
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def seconds_of(actions):
    """Until all are done, each in a thread of its own."""
    threads = [threading.Thread(target=action) for action in actions]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begin


def write_directly(path, num_bytes):
    buffer = mmap.mmap(-1, BLOCK)
    buffer.write(os.urandom(1 << 20) * (BLOCK >> 20))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    os.posix_fallocate(fd, 0, num_bytes)
    for offset in range(0, num_bytes, BLOCK):
        os.pwrite(fd, buffer, offset)
    os.fsync(fd)
    os.close(fd)


def raw_write_seconds(folder, num_bytes, num_writers):
    paths = [f"{folder}/raw_{i}" for i in range(num_writers)]
    part = num_bytes // num_writers // BLOCK * BLOCK
    seconds = seconds_of([lambda path=path: write_directly(path, part) for path in paths])
    for path in paths:
        os.remove(path)
    return seconds * num_bytes / (part * num_writers)


def read_stretch(path, begin, end):
    buffer = memoryview(mmap.mmap(-1, BLOCK))
    fd = os.open(path, os.O_RDONLY)
    for offset in range(begin, end, BLOCK):
        os.preadv(fd, [buffer], offset)
    os.close(fd)


def read_once_seconds(paths, readers_per_file):
    actions = []
    for path in paths:
        part = -(-os.path.getsize(path) // readers_per_file // BLOCK) * BLOCK
        actions += [lambda path=path, i=i, part=part: read_stretch(path, i * part, min((i + 1) * part,
                                                                                      os.path.getsize(path)))
                    for i in range(readers_per_file)]
    return seconds_of(actions)


# ---- what is measured


def write_inputs(folder, num_layers):
    with open(folder + "/checkpoint.toml", "w", encoding="utf-8") as file:
        file.write(CONFIG.format(folder=folder, num_layers=num_layers))
    random.seed(1)
    with open(folder + "/tokens.bin", "wb") as file:
        array.array("H", (random.randrange(32000) for _ in range(100_000))).tofile(file)


def newest_checkpoint(folder, run):
    checkpoints = f"{folder}/{run}/checkpoints"
    return os.path.join(checkpoints, max(name for name in os.listdir(checkpoints) if name.startswith("step_")))


def write_shapes(folder, checkpoint):
    told = subprocess.run([TRAINER, "checkpoint", "inspect", checkpoint], check=True, stdout=subprocess.PIPE, text=True)
    shapes = {}
    for name, sizes in re.findall(r"weights/(\S+)\s+\S+\s+\[([\d, ]+)\]", told.stdout):
        shapes[name] = [int(size) for size in sizes.split(",")]
    assert len(shapes) > 10, told.stdout
    with open(folder + "/shapes.json", "w", encoding="utf-8") as file:
        json.dump(shapes, file)


def measure_saves(args, folder, found):
    log = train(folder, "run", SAVED)
    checkpoint = newest_checkpoint(folder, "run")
    size = sum(map(os.path.getsize, files_below(checkpoint)))
    write_shapes(folder, checkpoint)
    found["save"] += [size / float(s) / 1e9 for s in re.findall(r"saved \S+ in ([\d.]+) s", log)]
    found["raw"].append(size / min(raw_write_seconds(folder, size, 1), raw_write_seconds(folder, size, 2)) / 1e9)
    found["torch save"].append(size / torch_seconds(args, folder, "save", "fsdp") / 1e9)
    return checkpoint


def measure_loads(args, folder, checkpoint, found):
    size = sum(map(os.path.getsize, files_below(checkpoint)))
    shards = files_below(checkpoint + "/shards")
    for readers in (1, 2):
        empty_page_cache(folder)
        found[f"read once, {readers} readers a rank"].append(size / read_once_seconds(shards, readers) / 1e9)
    for name, layout in LAYOUTS.items():
        empty_page_cache(folder)
        log = train(folder, "other", layout | {"checkpoint.resume": checkpoint, "checkpoint.every_steps": 0,
                                               "train.steps": 4})
        found["load " + name].append(size / float(re.search(r"loaded in ([\d.]+) s", log)[1]) / 1e9)
        shutil.rmtree(folder + "/other")
    for layout in ("fsdp", "tp"):
        empty_page_cache(folder)
        found["torch load " + layout].append(size / torch_seconds(args, folder, "load", layout) / 1e9)


def measure_stalls(args):
    """Milliseconds by save, and what saving does to the other steps."""
    every = 3
    with tempfile.TemporaryDirectory(prefix="trainer_bench_", dir=args.dir) as folder:
        write_inputs(folder, 4)
        train(folder, "run", SAVED | {"train.steps": every * (args.saves + 1), "checkpoint.every_steps": every,
                                      "checkpoint.async": "true", "train.global_batch_size": 16})
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            steps = [json.loads(line) for line in file][every:]
        with open(folder + "/run/log.txt", encoding="utf-8") as file:
            seconds = [float(s) for s in re.findall(r"saved \S+ in ([\d.]+) s", file.read())]
    stalls = [sum(step["save_stall_ms"] for step in steps[i:i + every]) for i in range(0, len(steps), every)]
    during = statistics.median(step["step_ms"] for step in steps[0::every])
    without = statistics.median(step["step_ms"] for step in steps[2::every])
    print(f"\nstall of a save, {len(stalls)} of them: median {statistics.median(stalls):.2f} ms, 95th percentile "
          f"{statistics.quantiles(stalls, n=20)[-1]:.2f} ms; a step takes {without:.0f} ms, {during:.0f} ms while a "
          f"checkpoint is written; published {statistics.median(seconds):.2f} s after its begin")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--saves", type=int, default=20, help="of which the stall is measured")
    parser.add_argument("--python", help="a Python that has torch")
    args = parser.parse_args()
    args.python = args.python or python_with_torch(args)
    return args


def main():
    args = parse()
    os.chdir(ROOT)
    found = {name: [] for name in ("raw", "save", "torch save", "read once, 1 readers a rank",
                                   "read once, 2 readers a rank", *("load " + name for name in LAYOUTS),
                                   "torch load fsdp", "torch load tp")}
    for repeat in range(args.repeats):
        with tempfile.TemporaryDirectory(prefix="trainer_bench_", dir=args.dir) as folder:
            write_inputs(folder, 12)
            measure_loads(args, folder, measure_saves(args, folder, found), found)
        print(f"  repeat {repeat + 1} of {args.repeats}", file=sys.stderr, flush=True)
    middle = {name: statistics.median(rates) for name, rates in found.items()}
    read = max(middle["read once, 1 readers a rank"], middle["read once, 2 readers a rank"])
    print("| what | GB/s: median (min-max) | beside the disk | beside torch |\n| --- | --- | --- | --- |")
    for name, rates in found.items():
        ratio, torch = "", ""
        if name == "save":
            ratio, torch = f"{middle[name] / middle['raw']:.2f} of raw", f"{middle[name] / middle['torch save']:.1f}x"
        elif name.startswith("load"):
            other = "torch load fsdp" if "same" in name else "torch load tp"
            ratio = f"{read / middle[name]:.2f} of its time"
            torch = f"{middle[name] / middle[other]:.1f}x"
        print(f"| {name} | {middle[name]:.2f} ({min(rates):.2f}-{max(rates):.2f}) | {ratio} | {torch} |")
    measure_stalls(args)


if __name__ == "__main__":
    main()
