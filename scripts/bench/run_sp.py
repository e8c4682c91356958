#!/usr/bin/env python3
"""Sequence parallelism on one machine: what activations a rank holds at sp = 1, 2 and 4, beside the 1/sp line (the goal:
within 10 % of it), and how evenly the zigzag cut shares out the (query, key) pairs that a causal mask lets through (the
goal: within 1 %).

Activations are the peak of their category in the plan, which is a dry run of the program's own step; a run of two steps
then tells the peak of all memory, less what it keeps between steps.

Needs build/release/bin/trainer (scripts/build.sh release).
"""
import argparse
import array
import json
import os
import random
import subprocess
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TRAINER = os.path.join(ROOT, "build", "release", "bin", "trainer")
METHODS = ("ring", "ulysses", "all_gather")
CONFIG = """
[run]
name = "sequence"
[model]
vocab_size = 128
num_layers = 8
hidden_size = 256
num_heads = 4
tie_embeddings = true
[train]
steps = 2
global_batch_size = 1
micro_batch_size = 1
[optimizer]
lr = 1e-3
"""


def environment():
    odd = ("OPENBLAS_", "OMP_", "GOMP_", "OMPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(odd)}
    return kept | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_mpi_yield_when_idle": "1"}


def write_inputs(folder):
    with open(folder + "/sequence.toml", "w", encoding="utf-8") as file:
        file.write(CONFIG + f'[data]\ntrain = "{folder}/tokens.bin"\n')
    random.seed(1)
    with open(folder + "/tokens.bin", "wb") as file:
        array.array("H", (random.randrange(128) for _ in range(100_000))).tofile(file)


def settings(args, sp, method):
    values = {"parallel.sp": sp, "parallel.sp_method": method, "model.seq_len": args.seq_len}
    return [f"--set={key}={value}" for key, value in values.items()]


def planned_memory(folder, args, sp, method):
    """Peak of activations, and bytes kept between steps."""
    command = [TRAINER, "plan", folder + "/sequence.toml", "--world", str(sp), "--json", *settings(args, sp, method)]
    plan = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    memory = {row["category"]: row for row in plan["memory"]}
    return memory["activations"]["peak_bytes"], sum(row["kept_bytes"] for row in plan["memory"])


def measured_memory(folder, args, sp, method):
    """Peak of all memory of rank 0 of a run."""
    run = f"{folder}/run_{method}_{sp}"
    command = ["mpirun", "--oversubscribe", "-np", str(sp), TRAINER, folder + "/sequence.toml", "--set", f"run.dir={run}",
               "--set", "checkpoint.resume=none", *settings(args, sp, method)]
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)
    with open(run + "/metrics.jsonl", encoding="utf-8") as file:
        return max(json.loads(line)["memory_bytes"] for line in file)


def memory_table(args):
    print("| sp_method | sp | activations | of the 1/sp line | run: all memory above what it keeps |\n"
          "| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="trainer_bench_") as folder:
        write_inputs(folder)
        for method in METHODS:
            whole = None
            for sp in (1, 2, 4):
                activations, kept = planned_memory(folder, args, sp, method)
                whole = whole or activations
                measured = measured_memory(folder, args, sp, method) - kept
                print(f"| {method} | {sp} | {activations / 1e6:.1f} MB | {activations * sp / whole:.3f} "
                      f"| {measured / 1e6:.1f} MB |", flush=True)


def visible_pairs(seq_len, sp, is_zigzag):
    """(query, key) pairs under a causal mask, by rank: a query at position p sees p + 1 keys."""
    half = seq_len // (2 * sp)
    parts = [(rank, 2 * sp - 1 - rank) if is_zigzag else (2 * rank, 2 * rank + 1) for rank in range(sp)]
    return [sum(sum(range(part * half + 1, (part + 1) * half + 1)) for part in held) for held in parts]


def work_table(args):
    print("\n| sp | pairs a rank, zigzag | most over least | contiguous: most over least |\n| --- | --- | --- | --- |")
    for sp in (1, 2, 4, 8):
        zigzag, contiguous = (visible_pairs(args.seq_len, sp, is_zigzag) for is_zigzag in (True, False))
        print(f"| {sp} | {max(zigzag)} | {max(zigzag) / min(zigzag):.4f} | {max(contiguous) / min(contiguous):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq-len", type=int, default=4096)
    args = parser.parse_args()
    memory_table(args)
    work_table(args)


if __name__ == "__main__":
    main()
