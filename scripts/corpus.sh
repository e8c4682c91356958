#!/usr/bin/env bash
# Writes the quickstart's text: the King James Bible from Debian's bible-kjv-text, one verse a line, without the
# reference ("Ge1:1 ") that `bible` prints before each. Usage: scripts/corpus.sh OUTPUT.txt
set -euo pipefail
output=$1
num_verses=31102

[ -s "$output" ] && [ "$(wc -l <"$output")" -eq $num_verses ] && exit 0
mkdir -p "$(dirname "$output")"
bible -f gen1:1-rev22:21 </dev/null | sed -E 's/^[0-9A-Za-z]+:[0-9]+ +//' >"$output.part"
found=$(wc -l <"$output.part")
if [ "$found" -ne $num_verses ]; then
  echo "scripts/corpus.sh: 'bible -f gen1:1-rev22:21' printed $found lines, not the $num_verses verses of the whole text." >&2
  echo "  Fix: reinstall it with: apt-get install --reinstall bible-kjv bible-kjv-text" >&2
  exit 1
fi
mv "$output.part" "$output"
