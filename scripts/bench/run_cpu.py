#!/usr/bin/env python3
"""Training speed on the CPU: ours beside PyTorch (plain, tuned, compiled) and beside the bound of matrix products.

Variants alternate inside each repeat, each run waits for a quiet machine, and the tables give medians; see
docs/benchmarks/cpu.md. Every step of every run goes to build/bench/cpu.json.
"""
import argparse
import array
import dataclasses
import datetime
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile

import quiet

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.path.join(ROOT, "build", "release", "bin")
OPENBLAS_OPENMP = "/usr/lib/x86_64-linux-gnu/openblas-openmp"
VOCAB_SIZE = 50304  # GPT-2's 50257, rounded up to a multiple of 128
TORCH_VARIANTS = ("plain", "tuned", "compile")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    seq_len: int
    batch_size: int
    steps: int  # of one run, the first not counted


ROWS = (
    Row("small-4", 6, 384, 6, 256, 4, 12),
    Row("small-8", 6, 384, 6, 256, 8, 8),
    Row("gpt2-64", 12, 768, 12, 64, 4, 10),
    Row("gpt2-256", 12, 768, 12, 256, 4, 6),
    Row("gpt2-1024", 12, 768, 12, 1024, 4, 4),
)

CONFIG = """
[run]
dir = "{folder}/run"
[model]
vocab_size = {vocab_size}
num_layers = {row.num_layers}
hidden_size = {row.hidden_size}
num_heads = {row.num_heads}
seq_len = {row.seq_len}
norm = "layer_norm"
activation = "gelu_tanh"
position = "learned"
bias = true
tie_embeddings = true
[train]
steps = {steps}
global_batch_size = {row.batch_size}
micro_batch_size = {row.batch_size}
max_grad_norm = 0
[optimizer]
lr = 1e-4
[lr_schedule]
kind = "constant"
[data]
train = "{folder}/tokens.bin"
[checkpoint]
every_steps = 0
resume = "none"
"""


@dataclasses.dataclass
class Result:
    tokens_per_second: float
    peak_bytes: int
    others: float
    details: dict


def clean_environment():
    """Without switches that would change one library and not the other."""
    odd = ("OPENBLAS_", "MKL_", "OMP_", "GOMP_", "KMP_", "GLIBC_TUNABLES", "LD_PRELOAD")
    return {name: value for name, value in os.environ.items() if not name.startswith(odd)}


def torch_environment(variant, threads):
    """Tuned: a malloc that keeps its pages, in huge pages, instead of mapping and faulting every large tensor anew each
    step; and one thread pool for products and all else, where torch calls the system's OpenBLAS."""
    environment = clean_environment() | {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                                                         "MKL_NUM_THREADS")}
    if variant != "plain":
        tunables = {"hugetlb": 1, "mmap_threshold": 8 << 30, "trim_threshold": 16 << 30, "top_pad": 256 << 20}
        environment["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{name}={value}" for name, value in tunables.items())
        if os.path.isdir(OPENBLAS_OPENMP):
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, (OPENBLAS_OPENMP, os.environ.get("LD_LIBRARY_PATH"))))
    return environment


def result_of(row, step_ms, finished, details=None):
    median_ms = statistics.median(step_ms[1:])  # the first step touches the memory
    return Result(row.batch_size * row.seq_len / median_ms * 1e3, finished.peak_bytes, finished.others,
                  {"step_ms": step_ms, **(details or {})})


def run_torch(args, row, threads, variant):
    command = [args.python, os.path.join(ROOT, "scripts", "bench", "torch_gpt.py")]
    for name in ("num_layers", "hidden_size", "num_heads", "seq_len", "batch_size"):
        command += ["--" + name.replace("_", "-"), str(getattr(row, name))]
    command += ["--vocab-size", str(VOCAB_SIZE), "--threads", str(threads), "--steps", str(args.steps or row.steps)]
    if variant == "compile":
        command.append("--compile")
    finished = quiet.run(command, torch_environment(variant, threads), threads, args)
    details = json.loads(finished.stdout.splitlines()[-1])
    return result_of(row, details.pop("step_ms"), finished, details)


def run_ours(args, row, threads):
    steps = args.steps or row.steps
    with tempfile.TemporaryDirectory(prefix="trainer_bench_") as folder:
        rng = random.Random(1234)
        num_tokens = (steps + 1) * row.batch_size * row.seq_len + 1
        tokens = array.array("H", (rng.randrange(VOCAB_SIZE) for _ in range(num_tokens)))
        with open(os.path.join(folder, "tokens.bin"), "wb") as file:
            tokens.tofile(file)
        config = os.path.join(folder, "bench.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(row=row, folder=folder, vocab_size=VOCAB_SIZE, steps=steps))
        finished = quiet.run([os.path.join(BIN, "trainer"), config], clean_environment(), threads, args)
        with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as file:
            metrics = [json.loads(line) for line in file]
    steps_only = [m for m in metrics if "step_ms" in m]
    return result_of(row, [m["step_ms"] for m in steps_only], finished,
                     {"first_loss": steps_only[0]["loss"], "last_loss": steps_only[-1]["loss"]})


def run_bound(args, row, threads):
    command = [os.path.join(BIN, "sgemm_bound")]
    command += [str(x) for x in (row.num_layers, row.hidden_size, row.seq_len, row.batch_size, VOCAB_SIZE)]
    finished = quiet.run(command, clean_environment() | {"OMP_NUM_THREADS": str(threads)}, threads, args)
    details = json.loads(finished.stdout)
    return Result(details["tokens_per_second"], finished.peak_bytes, finished.others, details)


def measure(args, row, threads):
    """Results by variant, a list each, in alternation."""
    runs = {"ours": lambda: run_ours(args, row, threads), "bound": lambda: run_bound(args, row, threads)}
    runs |= {variant: (lambda v=variant: run_torch(args, row, threads, v)) for variant in TORCH_VARIANTS}
    results = {variant: [] for variant in runs if variant in args.variants}
    for repeat in range(args.repeats):
        for variant, collected in results.items():
            collected.append(runs[variant]())
            last = collected[-1]
            print(f"  {row.name} {threads} thread(s), repeat {repeat + 1}/{args.repeats}: {variant:8}"
                  f"{last.tokens_per_second:9.1f} tokens/s, {last.peak_bytes / 2**20:6.0f} MiB,"
                  f" others used {last.others:.2f} CPU", flush=True)
    return results


def speed_of(results, variant):
    runs = results.get(variant)
    return statistics.median(run.tokens_per_second for run in runs) if runs else None


def peak_of(results, variants):
    """The least memory among the variants: the hardest to beat."""
    peaks = [statistics.median(run.peak_bytes for run in results[v]) for v in variants if results.get(v)]
    return min(peaks) if peaks else None


def spread(results, variant):
    if not results.get(variant):
        return "-"
    speeds = [run.tokens_per_second for run in results[variant]]
    return f"{statistics.median(speeds):.0f} ({min(speeds):.0f}-{max(speeds):.0f})"


def ratio(value, other):
    return f"{value / other:.2f}" if value and other else "-"


def table_row(row, threads, results):
    torch_speeds = {v: speed_of(results, v) for v in TORCH_VARIANTS if results.get(v)}
    ours, memory = speed_of(results, "ours"), peak_of(results, ["ours"])
    cells = [row.name, str(threads)] + [spread(results, v) for v in ("ours", *TORCH_VARIANTS, "bound")]
    cells += [ratio(ours, max(torch_speeds.values(), default=None)), ratio(ours, torch_speeds.get("plain")),
              ratio(ours, speed_of(results, "bound")), ratio(memory, peak_of(results, TORCH_VARIANTS))]
    return "| " + " | ".join(cells) + " |"


HEADER = """| row | threads | ours | plain | tuned | compile | bound | ours / fastest | ours / plain | ours / bound | memory / torch |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def python_with_torch(args):
    """The one given, this one, or that of a venv made for the purpose."""
    if args.python or has_torch(sys.executable):
        return args.python or sys.executable
    venv = os.path.join(ROOT, "build", "bench_venv")
    python = os.path.join(venv, "bin", "python")
    if not (os.path.exists(python) and has_torch(python)):
        print(f"bench: installing torch into {os.path.relpath(venv, ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy"], check=True)
    return python


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"


def parse_arguments():
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="scripts/bench.sh cpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--variants", nargs="+", choices=("ours", "bound", *TORCH_VARIANTS),
                        default=["ours", "bound", *TORCH_VARIANTS])
    parser.add_argument("--steps", type=int, help="of a run, instead of each row's own number (at least 2)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python", help="a Python that has torch")
    parser.add_argument("--max-others", type=float, default=0.12, help="CPUs that others may use during a run")
    parser.add_argument("--wait-seconds", type=float, default=120, help="longest wait for a quiet second")
    parser.add_argument("--attempts", type=int, default=3, help="runs until one is undisturbed")
    args = parser.parse_args()
    if args.steps is not None and args.steps < 2:
        parser.error("--steps must be at least 2: the first is not counted")
    return args


def main():
    args = parse_arguments()
    targets = [target for variant, target in (("ours", "trainer"), ("bound", "sgemm_bound")) if variant in args.variants]
    if targets:
        subprocess.run([os.path.join(ROOT, "scripts", "build.sh"), "release", *targets], check=True)
    if set(args.variants) & set(TORCH_VARIANTS):
        args.python = python_with_torch(args)
    date = datetime.date.today().isoformat()
    lines, raw = [], {"date": date, "hardware": processor(), "arguments": sys.argv[1:], "runs": {}}
    for row in (row for row in ROWS if row.name in args.rows):
        for threads in args.threads:
            results = measure(args, row, threads)
            lines.append(table_row(row, threads, results))
            raw["runs"][f"{row.name}/{threads}"] = {v: [vars(run) for run in runs] for v, runs in results.items()}
            os.makedirs(os.path.join(ROOT, "build", "bench"), exist_ok=True)
            with open(os.path.join(ROOT, "build", "bench", "cpu.json"), "w", encoding="utf-8") as file:
                json.dump(raw, file, indent=1)
    print(f"\n{processor()}, {date}; tokens per second, median (least-most) of {args.repeats} runs")
    print("\n".join([HEADER, *lines]))


if __name__ == "__main__":
    main()
