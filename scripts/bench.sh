#!/usr/bin/env bash
# Benchmarks, never part of the tests. `scripts/bench.sh cpu` compares training on the CPU with PyTorch and with what
# matrix products alone would allow; see docs/benchmarks/cpu.md. `scripts/bench.sh cpu --help` lists the options.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  cpu)
    shift
    exec python3 scripts/bench/run_cpu.py "$@"
    ;;
  *)
    echo "usage: scripts/bench.sh cpu [OPTIONS]" >&2
    exit 2
    ;;
esac
