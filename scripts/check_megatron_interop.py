#!/usr/bin/env python3
"""Checks that .bin/.idx files mean the same to us and to the `megatron-core` package, both ways.

    scripts/check_megatron_interop.py TRAINER            runs both checks
    scripts/check_megatron_interop.py --write-goldens    rewrites tests/data/golden/megatron_*.{bin,idx}

Needs `pip install megatron-core torch numpy`."""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/data/golden"


def make_documents(vocab_size, seed):
    """Documents of one or more sequences each."""
    rng = random.Random(seed)
    return [[[rng.randrange(vocab_size) for _ in range(rng.randrange(1, 40))] for _ in range(rng.randrange(1, 4))]
            for _ in range(50)]


def write_with_megatron(prefix, documents, dtype):
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for document in documents:
        for sequence in document:
            builder.add_item(torch.tensor(sequence))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


def describe(documents):
    tokens = [sum(map(len, document)) for document in documents]
    ids = [token for document in documents for sequence in document for token in sequence]
    return {"tokens": str(len(ids)), "documents": f"{len(documents)} (tokens each: min {min(tokens)}, "
            f"mean {sum(tokens) / len(tokens):.1f}, max {max(tokens)})", "largest id": str(max(ids)),
            "first ids": " ".join(map(str, ids[:16])) + " ..."}


def check_theirs(trainer, folder):
    for dtype, vocab_size in ((numpy.uint16, 60_000), (numpy.int32, 150_000)):
        documents = make_documents(vocab_size, seed=vocab_size)
        write_with_megatron(folder / "theirs", documents, dtype)
        shown = subprocess.run([trainer, "data", "inspect", folder / "theirs.bin"], check=True, capture_output=True,
                               text=True).stdout
        for key, value in describe(documents).items():
            if not re.search(rf"^ *{key} +{re.escape(value)}$", shown, re.M):
                sys.exit(f"theirs, {dtype.__name__}: inspect should say {key} {value}, but says\n{shown}")
        print(f"theirs, {dtype.__name__}: read equal by us ({len(documents)} documents)")


def check_ours(trainer, folder):
    rng = random.Random(1)
    texts = ["".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 200))) for _ in range(1000)]
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    subprocess.run([trainer, "data", "build", folder / "text.jsonl", "--output", folder / "ours", "--documents", "jsonl",
                    "--tokenizer", "bytes"], check=True, stdout=subprocess.DEVNULL)
    dataset = IndexedDataset(str(folder / "ours"))
    assert dataset.index.dtype == numpy.uint16 and len(dataset) == len(texts)
    assert dataset.document_indices.tolist() == list(range(len(texts) + 1))
    for i, text in enumerate(texts):
        assert dataset[i].tolist() == list(text.encode()), f"document {i}"
    print(f"ours, uint16: read equal by megatron-core ({len(texts)} documents)")


def main():
    if sys.argv[1:] == ["--write-goldens"]:
        for name, dtype, vocab_size in (("u16", numpy.uint16, 60_000), ("i32", numpy.int32, 150_000)):
            documents = make_documents(vocab_size, seed=len(name))
            write_with_megatron(GOLDEN / f"megatron_{name}", documents, dtype)
            (GOLDEN / f"megatron_{name}.json").write_text(json.dumps(documents, separators=(",", ":")) + "\n")
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        check_theirs(sys.argv[1], pathlib.Path(folder))
        check_ours(sys.argv[1], pathlib.Path(folder))


if __name__ == "__main__":
    main()
