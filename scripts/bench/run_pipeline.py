#!/usr/bin/env python3
"""Pipeline parallelism on one machine: two ranks of one thread each, two uniform stages (or four, interleaved), and 2 to
16 micro-batches. Measured is the bubble: what the ranks wait in a step, over what they work, beside (P-1)/m, which is what
1F1B costs; the goal is within 15 % of it, and interleaved and zb_h1 below 1f1b. Schedules alternate inside each repeat, in
quiet windows; figures are medians of steps.

Needs build/release/bin/trainer (scripts/build.sh release).
"""
import argparse
import array
import json
import os
import random
import statistics
import tempfile

import quiet

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TRAINER = os.path.join(ROOT, "build", "release", "bin", "trainer")
NUM_RANKS = 2
MICRO_BATCH_SIZE = 4
# A small vocabulary: embedding and head are less than 1 % of a stage.
CONFIG = """
[run]
name = "bubble"
[model]
vocab_size = 64
num_layers = 8
hidden_size = 384
num_heads = 6
seq_len = 128
tie_embeddings = false
[train]
steps = 10
[log]
trace = true
"""


def environment():
    odd = ("OPENBLAS_", "OMP_", "GOMP_", "OMPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(odd)}
    return kept | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def write_inputs(folder):
    with open(folder + "/bubble.toml", "w", encoding="utf-8") as file:
        file.write(CONFIG + f'[data]\ntrain = "{folder}/tokens.bin"\n')
    random.seed(1)
    with open(folder + "/tokens.bin", "wb") as file:
        array.array("H", (random.randrange(64) for _ in range(200_000))).tofile(file)


def run(args, schedule, num_microbatches):
    """Of the median step after the first: bubble, predicted bubble, milliseconds."""
    with tempfile.TemporaryDirectory(prefix="trainer_bench_") as folder:
        write_inputs(folder)
        values = {"run.dir": folder + "/run", "train.steps": args.steps, "train.micro_batch_size": MICRO_BATCH_SIZE,
                  "train.global_batch_size": MICRO_BATCH_SIZE * num_microbatches, "parallel.pp": NUM_RANKS,
                  "parallel.schedule": schedule}
        command = ["mpirun", "-np", str(NUM_RANKS), "--bind-to", "core", TRAINER, folder + "/bubble.toml"]
        for key, value in values.items():
            command += ["--set", f"{key}={value}"]
        quiet.run(command, environment(), NUM_RANKS, args)
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            steps = [json.loads(line) for line in file][1:]
    names = ("bubble/idle_over_ideal", "bubble/predicted_idle_over_ideal", "step_ms")
    return [statistics.median(step[name] for step in steps) for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", nargs="+", default=["gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"])
    parser.add_argument("--microbatches", nargs="+", type=int, default=[2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=12, help="of one run, the first not counted")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-others", type=float, default=0.12, help="CPUs that others may use in a quiet second")
    parser.add_argument("--wait-seconds", type=float, default=60, help="longest wait for one")
    parser.add_argument("--attempts", type=int, default=3, help="runs until one is left alone")
    args = parser.parse_args()

    os.chdir(ROOT)
    print("| micro-batches | schedule | bubble: median (min-max) | (P-1)/m | bubble / that | simulated | step, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for m in args.microbatches:
        runs = {schedule: [] for schedule in args.schedules}
        for _ in range(args.repeats):
            for schedule in args.schedules:
                runs[schedule].append(run(args, schedule, m))
        for schedule, of_schedule in runs.items():
            bubbles = [bubble for bubble, _, _ in of_schedule]
            median, rule = statistics.median(bubbles), (NUM_RANKS - 1) / m
            step_ms = statistics.median(ms for _, _, ms in of_schedule)
            print(f"| {m} | {schedule} | {median:.3f} ({min(bubbles):.3f}-{max(bubbles):.3f}) | {rule:.3f} | "
                  f"{median / rule:.2f} | {of_schedule[0][1]:.3f} | {step_ms:.0f} |", flush=True)


if __name__ == "__main__":
    main()
