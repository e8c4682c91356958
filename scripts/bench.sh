#!/usr/bin/env bash
# Benchmarks, never part of the tests. `scripts/bench.sh cpu` compares training on the CPU with PyTorch and with what
# matrix products alone would allow; see docs/benchmarks/cpu.md. `scripts/bench.sh dp` measures data parallelism over two
# ranks, `scripts/bench.sh pipeline` the bubbles of schedules, `scripts/bench.sh sp` what sequence-parallel ranks hold.
# `--help` after any of them lists the options.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  cpu)
    shift
    exec python3 scripts/bench/run_cpu.py "$@"
    ;;
  dp)
    shift
    exec python3 scripts/bench/run_dp.py "$@"
    ;;
  pipeline)
    shift
    exec python3 scripts/bench/run_pipeline.py "$@"
    ;;
  sp)
    shift
    exec python3 scripts/bench/run_sp.py "$@"
    ;;
  *)
    echo "usage: scripts/bench.sh cpu|dp|pipeline|sp [OPTIONS]" >&2
    exit 2
    ;;
esac
