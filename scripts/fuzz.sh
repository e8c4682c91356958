#!/usr/bin/env bash
# Feeds every parser of files with broken ones, under address and undefined-behaviour sanitizers, for a minute each:
# scripts/fuzz.sh [SECONDS [TARGET...]]. One line per target; a finding ends it with 1, and its line has the command
# that brings it back.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=("${@:2}")
fuzzer=build/asan/bin/parser_fuzzer

mkdir -p build
scripts/build.sh asan parser_fuzzer >build/fuzz.log 2>&1 || { cat build/fuzz.log >&2; exit 1; }
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <("$fuzzer" list)
# One more at a time than there are cores: some wait for the disk.
printf '%s\n' "${targets[@]}" | xargs -P "$(($(nproc) + 1))" -I{} "$fuzzer" {} --seconds "$seconds" ||
  { echo "scripts/fuzz.sh: there are findings" >&2; exit 1; }
