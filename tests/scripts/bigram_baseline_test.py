"""scripts/bigram_baseline.py counts, smooths and splits as it says."""
import collections
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
try:
    import bigram_baseline
except ModuleNotFoundError as error:  # tomllib came with Python 3.11
    print(f"skipped: {error}")
    sys.exit(77)

CONFIG = {"model": {"seq_len": 10}, "data": {"valid_fraction": 0.25}, "train": {"eval_steps": 1, "global_batch_size": 2}}


class BigramBaseline(unittest.TestCase):
    def test_splits_samples_as_the_trainer_does(self):
        train, valid = bigram_baseline.split(105, CONFIG)  # 10 samples, of which round(2.5) = 3 are held out

        self.assertEqual((train.start, train.stop), (0, 71))
        self.assertEqual((valid.start, valid.stop), (70, 91))  # 2 of the 3 are evaluated, and one more target

    def test_needs_no_bits_where_the_next_token_is_certain(self):
        pairs, firsts = collections.Counter({(0, 1): 50, (1, 0): 50}), collections.Counter({0: 50, 1: 50})

        bits = bigram_baseline.bits_per_token(pairs, firsts, collections.Counter({(0, 1): 3}), 2, 1e-9)

        self.assertAlmostEqual(bits, 0, places=6)

    def test_smooths_by_adding_to_every_count(self):
        pairs, firsts = collections.Counter({(0, 1): 3}), collections.Counter({0: 3})

        bits = bigram_baseline.bits_per_token(pairs, firsts, collections.Counter({(0, 0): 1}), 4, 0.25)

        self.assertAlmostEqual(bits, 4)  # 0.25 / (3 + 4 * 0.25) = 1 / 16


if __name__ == "__main__":
    unittest.main()
