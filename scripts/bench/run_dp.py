#!/usr/bin/env python3
"""Data parallelism on one machine: the quickstart's model on one rank of one thread, and on two ranks of one thread each,
whole (ZeRO-0) and cut (ZeRO-3). The goal: two ranks reach 1.7 times the tokens per second of one, and ZeRO-3 keeps 0.85
of that. The runs alternate inside each repeat, in quiet windows; figures are medians of step times.

Needs build/release/bin/trainer and the quickstart's dataset (scripts/quickstart.sh makes both).
"""
import argparse
import json
import os
import statistics
import tempfile

import quiet

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TRAINER = os.path.join(ROOT, "build", "release", "bin", "trainer")
CONFIG = os.path.join(ROOT, "configs", "quickstart.toml")
LAYOUTS = {"1 rank": (1, 0), "dp=2": (2, 0), "dp=2, ZeRO-3": (2, 3)}  # ranks, zero_stage


def environment():
    odd = ("OPENBLAS_", "OMP_", "GOMP_", "OMPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(odd)}
    return kept | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(args, num_ranks, zero_stage):
    """Tokens per second of the whole run, by its median step."""
    with tempfile.TemporaryDirectory(prefix="trainer_bench_") as folder:
        values = {"run.dir": folder + "/run", "train.steps": args.steps, "train.eval_every": 0, "checkpoint.resume": "none",
                  "checkpoint.every_steps": 0, "lr_schedule.warmup_steps": 1, "parallel.zero_stage": zero_stage}
        command = ["mpirun", "-np", str(num_ranks), "--bind-to", "core", TRAINER, CONFIG]
        for key, value in values.items():
            command += ["--set", f"{key}={value}"]
        quiet.run(command, environment(), num_ranks, args)
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            steps = [json.loads(line) for line in file]
    tokens = steps[1]["tokens"] - steps[0]["tokens"]
    return tokens / statistics.median(step["step_ms"] for step in steps[1:]) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="of one run, the first not counted")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-others", type=float, default=0.12, help="CPUs that others may use in a quiet second")
    parser.add_argument("--wait-seconds", type=float, default=60, help="longest wait for one")
    parser.add_argument("--attempts", type=int, default=3, help="runs until one is left alone")
    args = parser.parse_args()

    os.chdir(ROOT)
    speeds = {name: [] for name in LAYOUTS}
    for _ in range(args.repeats):
        for name, layout in LAYOUTS.items():
            speeds[name].append(run(args, *layout))
            print(f"  {name:14}{speeds[name][-1]:10.0f} tokens/s", flush=True)
    one, two, zero3 = (statistics.median(speeds[name]) for name in LAYOUTS)
    print("\n| layout | tokens/s: median (min-max) | ratio |\n| --- | --- | --- |")
    for (name, runs), ratio in zip(speeds.items(), ("1", f"{two / one:.2f} of one rank", f"{zero3 / two:.2f} of dp=2")):
        print(f"| {name} | {statistics.median(runs):.0f} ({min(runs):.0f}-{max(runs):.0f}) | {ratio} |")


if __name__ == "__main__":
    main()
