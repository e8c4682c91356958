#!/usr/bin/env python3
"""What a bigram model reaches on the data of a run config: counts of token pairs in the part that is trained on,
evaluated on the very samples that `trainer` evaluates. A transformer that learnt anything must be below it.

Usage: bigram_baseline.py configs/quickstart.toml        (Python 3.11 or newer; data.train must be one .bin/.idx pair)

The pairs are smoothed by adding alpha to every count; alpha is the one that suits the evaluation best, which flatters
the bigram a little.
"""
import array
import collections
import math
import struct
import sys
import tomllib

DTYPES = {1: "B", 4: "i", 8: "H"}  # of the .idx header: u8, i32, u16
ALPHAS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


def read_tokens(prefix):
    with open(prefix + ".idx", "rb") as file:
        magic, version, dtype = struct.unpack("<9sQB", file.read(18))
    if magic != b"MMIDIDX\0\0" or version != 1 or dtype not in DTYPES:
        sys.exit(f"{prefix}.idx: not an index of u8, u16 or i32 tokens")
    tokens = array.array(DTYPES[dtype])
    with open(prefix + ".bin", "rb") as file:
        tokens.frombytes(file.read())
    return tokens


def split(num_tokens, config):
    """Token ranges (training, evaluation) as data/dataset.cpp cuts them; each ends with one more token, a target."""
    seq_len = config["model"]["seq_len"]
    num_samples = (num_tokens - 1) // seq_len
    num_held_out = max(1, math.floor(num_samples * config["data"]["valid_fraction"] + 0.5))
    num_evaluated = min(num_held_out, config["train"]["eval_steps"] * config["train"]["global_batch_size"])
    first = (num_samples - num_held_out) * seq_len
    return range(0, first + 1), range(first, first + num_evaluated * seq_len + 1)


def bits_per_token(pairs, firsts, evaluated, vocab_size, alpha):
    bits = sum(count * math.log2((firsts[pair[0]] + alpha * vocab_size) / (pairs[pair] + alpha))
               for pair, count in evaluated.items())
    return bits / sum(evaluated.values())


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        config = tomllib.load(file)
    tokens = read_tokens(config["data"]["train"])
    train, valid = (tokens[r.start:r.stop] for r in split(len(tokens), config))
    pairs, firsts = collections.Counter(zip(train, train[1:])), collections.Counter(train[:-1])
    evaluated = collections.Counter(zip(valid, valid[1:]))

    bits, alpha = min((bits_per_token(pairs, firsts, evaluated, config["model"]["vocab_size"], a), a) for a in ALPHAS)
    print(f"bigram: {bits:.4f} bits per token = loss {bits * math.log(2):.4f} "
          f"({len(valid) - 1} tokens of evaluation, {len(train) - 1} of training, alpha {alpha})")


if __name__ == "__main__":
    main()
