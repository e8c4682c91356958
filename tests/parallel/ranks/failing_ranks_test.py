"""A failing rank says why, once, and takes every other rank with it: failing_ranks_test.py PROGRAM MPIEXEC [FLAG...]"""
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]
MPIEXEC = sys.argv[2:]


def run(mode, ranks=4):
    """Exit code, what was printed. ranks = 0: bare, without mpirun."""
    launcher = MPIEXEC + ["-np", str(ranks)] if ranks else []
    done = subprocess.run(launcher + [PROGRAM, mode], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout


class FailingRanks(unittest.TestCase):
    def test_no_failure_is_exit_0_and_silence(self):
        for ranks in (0, 1, 4):
            self.assertEqual(run("none", ranks), (0, ""))

    def test_one_rank_ends_all_with_its_exit_code_and_reason(self):
        code, said = run("last_rank")
        self.assertEqual(code, 4)
        self.assertRegex(said, r"\[rank 3/4, node \S+\] the file is short\.")
        self.assertEqual(said.count("the file is short."), 1)

    def test_an_unknown_exception_is_our_bug(self):
        code, said = run("bug")
        self.assertEqual(code, 70)
        self.assertRegex(said, r"\[rank 3/4, node \S+\] out of range\n  This is a bug in trainer")

    def test_an_error_of_all_ranks_is_said_once_by_rank_0(self):
        code, said = run("every_rank")
        self.assertEqual(code, 3)
        self.assertEqual(said.count("tp = 3 does not fit."), 1)
        self.assertIn("[rank 0/4", said)

    def test_abort_adds_no_words_of_ours(self):
        code, said = run("abort")
        self.assertEqual(code, 75)
        self.assertNotIn("[rank", said)

    def test_a_world_of_one_returns_the_code_without_the_launcher(self):
        code, said = run("every_rank", ranks=0)
        self.assertEqual((code, said), (3, "tp = 3 does not fit.\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
