#!/usr/bin/env bash
# Setup, build, every test. Arguments go to ctest: scripts/test.sh -R attention
# The last line is the count: "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
scripts/build.sh release

# The preset's environment gives each test two threads that do not spin while they wait, since tests run side by side,
# and lets mpirun start as root, with more ranks than cores.
log=build/test.log
status=0
ctest --preset release --parallel "$(nproc)" --no-tests=error "$@" </dev/null 2>&1 | tee "$log" || status=$?
read -r failed total < <(sed -nE 's/^.*tests passed, ([0-9]+) tests failed out of ([0-9]+).*$/\1 \2/p' "$log") || true
if [ -z "${total:-}" ]; then
  echo "scripts/test.sh: ctest ended without a summary; see $log" >&2
  exit 1
fi
skipped=$(grep -c '\*\*\*Skipped' "$log") || true
[ "$skipped" -eq 0 ] || echo "$skipped skipped (they say why with: ctest --preset release --verbose -R NAME)"
echo "$((total - failed - skipped)) passed, $failed failed"
exit "$status"
