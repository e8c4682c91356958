#!/usr/bin/env python3
"""Writes tests/data/golden/{gpt2,llama3}_style.{tokenizer.json,ids.json}: two small tokenizers, trained here, and the
ids that the `tokenizers` package gives for texts. Needs `pip install tokenizers`. Rerun only to change the tests."""

import json
import pathlib
import sys

import tokenizer_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(style, vocab_size, num_bytes):
    tokenizer = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=style == "gpt2")
    if style == "gpt2":
        tokenizer.pre_tokenizer = byte_level
    else:
        split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated", invert=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(tokenizer_text.documents(num_bytes, seed=1), trainer)
    tokenizer.add_tokens([AddedToken("<|custom|>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("Wenceslao", normalized=True)])
    if style == "llama3":  # tokens that no merge makes, which only ignore_merges can find
        model = json.loads(tokenizer.to_str())
        model["model"]["merges"] = model["model"]["merges"][:-40]
        tokenizer = Tokenizer.from_str(json.dumps(model))
    return tokenizer


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests/data/golden"
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = int(sys.argv[1]) if len(sys.argv) > 1 else 700
    texts = ["", " ", "a", "\n", *tokenizer_text.SENTENCES, *tokenizer_text.documents(12_000, seed=2)]
    for style in ("gpt2", "llama3"):
        tokenizer = train(style, vocab_size, 300_000)
        tokenizer.save(str(folder / f"{style}_style.tokenizer.json"), pretty=False)
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts]
        (folder / f"{style}_style.ids.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
        print(style, tokenizer.get_vocab_size(), sum(len(case["ids"]) for case in cases), "ids")


if __name__ == "__main__":
    main()
