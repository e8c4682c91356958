#!/usr/bin/env bash
# From a fresh clone to a GPT that has learnt real text: setup, build, corpus, training, a sample.
# Arguments go to `trainer train`, as in: scripts/quickstart.sh --set train.steps=100
set -euo pipefail
cd "$(dirname "$0")/.."
trainer=build/release/bin/trainer

step() { printf '\n== %s\n' "$1"; }

step "1/5  Installing what is missing"
scripts/setup.sh
step "2/5  Building build/release/bin/trainer"
scripts/build.sh release trainer
step "3/5  Making the dataset: 31,102 verses of text, a token a byte"
scripts/corpus.sh data_cache/bible.txt
if [ data_cache/bible.idx -nt data_cache/bible.txt ]; then
  echo "data_cache/bible.bin and .idx are there"
else
  "$trainer" data build data_cache/bible.txt --output data_cache/bible --tokenizer bytes --documents lines --overwrite
fi
step "4/5  Training: $trainer configs/quickstart.toml $*"
"$trainer" configs/quickstart.toml "$@"
step "5/5  What it writes after \"In the beginning\""
"$trainer" sample configs/quickstart.toml "$@" --prompt "In the beginning "
