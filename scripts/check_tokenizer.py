#!/usr/bin/env python3
"""Compares `trainer data build` with the `tokenizers` package on mixed text: every id of every document.

    scripts/check_tokenizer.py TRAINER [--megabytes 10] [--tokenizer tokenizer.json ...]

Without --tokenizer it trains two of 16,384 tokens, GPT-2 and Llama-3 style. Also compares, for every Unicode character,
how the patterns class it. Needs `pip install tokenizers numpy`."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import make_tokenizer_goldens
import numpy
import tokenizer_text
from tokenizers import Tokenizer


def character_documents():
    """Each character between letters, digits, spaces, and after an apostrophe, so that its class shows in the ids."""
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    for i in range(0, len(characters), 64):
        yield "".join(f"a{c}b {c}1{c} {c}{c}\n{c}!{c}x'{c} " for c in characters[i:i + 64])


def build(trainer, tokenizer_path, texts, folder):
    source = folder / "text.jsonl"
    with open(source, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    start = time.time()
    subprocess.run([trainer, "data", "build", source, "--output", folder / "out", "--tokenizer", tokenizer_path,
                    "--documents", "jsonl", "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    seconds = time.time() - start
    index = (folder / "out.idx").read_bytes()
    num_sequences = int.from_bytes(index[18:26], "little")
    lengths = numpy.frombuffer(index, "<i4", num_sequences, 34)
    tokens = numpy.fromfile(folder / "out.bin", "<u2" if index[17] == 8 else "<i4")
    return numpy.split(tokens, numpy.cumsum(lengths)[:-1]), seconds


def compare(trainer, tokenizer_path, texts, what):
    texts = [text for text in texts if text]
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    with tempfile.TemporaryDirectory() as folder:
        ours, our_seconds = build(trainer, tokenizer_path, texts, pathlib.Path(folder))
    start = time.time()
    theirs = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    their_seconds = time.time() - start
    if len(ours) != len(theirs):
        sys.exit(f"{tokenizer_path}: {len(ours)} documents of {len(theirs)}")
    wrong = [i for i, ids in enumerate(theirs) if ours[i].tolist() != ids]
    for i in wrong[:5]:
        print(f"  differs: {texts[i]!r:.300}\n    ours   {ours[i].tolist()[:40]}"
              f"\n    theirs {theirs[i][:40]}")
    num_bytes = sum(len(text.encode()) for text in texts)
    print(f"{tokenizer_path.name}, {what}: {len(texts)} documents, {num_bytes / 1e6:.1f} MB, "
          f"{sum(map(len, theirs))} ids, {len(wrong)} documents differ; "
          f"ours {num_bytes / 1e6 / our_seconds:.1f} MB/s, theirs {num_bytes / 1e6 / their_seconds:.1f} MB/s", flush=True)
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--tokenizer", action="append", type=pathlib.Path, default=[])
    arguments = parser.parse_args()
    num_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = list(arguments.tokenizer)
        for style in () if paths else ("gpt2", "llama3"):
            paths.append(pathlib.Path(folder) / f"{style}.json")
            make_tokenizer_goldens.train(style, 16_384, 3_000_000).save(str(paths[-1]))
        for path in paths:
            texts = tokenizer_text.documents(int(arguments.megabytes * 1e6), seed=3)
            num_wrong += compare(arguments.trainer, path, texts, "mixed text")
            num_wrong += compare(arguments.trainer, path, character_documents(), "every character")
    sys.exit(1 if num_wrong else 0)


if __name__ == "__main__":
    main()
