#!/usr/bin/env bash
# Makes build/venv, a Python with the newest h5py from PyPI: tests read checkpoints with it and with Debian's older one.
# Does nothing where it is there; tests that need it are skipped where it is not.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
if [ -x "$venv/bin/python3" ] && "$venv/bin/python3" -c 'import h5py' 2>/dev/null; then exit 0; fi

if ! python3 -m venv "$venv" || ! "$venv/bin/python3" -m pip install --quiet h5py; then
  echo "scripts/venv.sh: build/venv could not be made (above); it needs python3-venv and a way to PyPI." >&2
  exit 1
fi
