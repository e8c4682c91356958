#!/usr/bin/env bash
# Formats every C++ and CUDA source in place; with --check, changes nothing and fails where something would change.
set -euo pipefail
cd "$(dirname "$0")/.."
version=14  # Debian 12's; other versions break lines elsewhere, so they are not asked

formatter=
for candidate in "clang-format-$version" clang-format; do
  if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q "version $version\."; then
    formatter=$candidate
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "scripts/format.sh: clang-format $version is not installed (package clang-format-$version)."
  [ "${1:-}" = --check ] && exit 77  # ctest's "skipped"
  exit 1
fi

folders=(tensor parallel model data checkpoint trainer scripts tests)
mapfile -t files < <(find "${folders[@]}" -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
if [ "${1:-}" = --check ]; then
  "$formatter" --dry-run --Werror "${files[@]}"
else
  "$formatter" -i "${files[@]}"
fi
