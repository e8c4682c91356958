"""A pipeline as users run it: pipeline_process_test.py --program TRAINER -- MPIEXEC [FLAG...]"""
import argparse
import array
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CONFIG = """
[run]
name = "pipe"
dir = "{folder}/run"
[model]
vocab_size = 64
num_layers = 4
hidden_size = 32
num_heads = 4
seq_len = 32
[train]
steps = 6
global_batch_size = 8
micro_batch_size = 1
[data]
train = "{folder}/tokens.bin"
"""


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


OPTIONS = arguments()


class Pipeline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.config = os.path.join(self.folder, "pipe.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(folder=self.folder))
        with open(os.path.join(self.folder, "tokens.bin"), "wb") as file:
            array.array("H", (i * i % 61 for i in range(20_000))).tofile(file)

    def command(self, num_ranks, *arguments):
        return OPTIONS.mpiexec + ["-np", str(num_ranks), OPTIONS.program, *arguments]

    def run_trainer(self, num_ranks, *arguments):
        done = subprocess.run(self.command(num_ranks, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def metrics(self, run="run"):
        with open(os.path.join(self.folder, run, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_a_traced_run_leaves_one_file_that_viewers_read(self):
        self.run_trainer(2, "train", self.config, "--set=parallel.pp=2", "--set=log.trace=true")

        self.assertEqual(os.listdir(os.path.join(self.folder, "run", "trace")), ["trace.json"])
        with open(os.path.join(self.folder, "run", "trace", "trace.json"), encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        for rank in (0, 1):
            passes = [e for e in events if e["pid"] == rank and e["ph"] == "X" and e["tid"] == 0]
            self.assertEqual(len(passes), 6 * 2 * 8)  # steps, F and B, micro-batches
            first = [e["name"] for e in passes if e["args"]["step"] == 1]
            self.assertEqual(first[:3], ["0F0", "0F1", "0B0"] if rank == 0 else ["1F0", "1B0", "1F1"])
            messages = {(e["name"], e["args"]["group"]) for e in events if
                        e["pid"] == rank and e["ph"] == "X" and e["tid"] == 1}
            self.assertIn(("send", "pp"), messages)
            self.assertTrue(all(e["dur"] >= 0 for e in passes))

    def test_a_trace_has_evaluations_and_no_part_of_an_earlier_run(self):
        trace = os.path.join(self.folder, "run", "trace")
        os.makedirs(trace)
        with open(os.path.join(trace, "rank_00007.part"), "w", encoding="utf-8"):
            pass

        self.run_trainer(2, "train", self.config, "--set=parallel.pp=2", "--set=log.trace=true", "--set=train.steps=2",
                         "--set=data.valid_fraction=0.1", "--set=train.eval_every=2", "--set=train.eval_steps=1")

        self.assertEqual(os.listdir(trace), ["trace.json"])
        with open(os.path.join(trace, "trace.json"), encoding="utf-8") as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("cat") == "forward"]
        of_steps = [[e for e in events if e["args"]["step"] == step] for step in (1, 2)]
        self.assertEqual(len(of_steps[0]), 2 * 8)
        self.assertEqual(len(of_steps[1]), 2 * (8 + 8), "with the evaluation after step 2")

    def test_metrics_have_the_bubble_beside_the_predicted_one(self):
        self.run_trainer(2, "train", self.config, "--set=parallel.pp=2", "--set=log.trace=true",
                         "--set=parallel.stages=[2,2]")

        for line in self.metrics():
            self.assertGreater(line["bubble/idle_over_ideal"], 0)
            self.assertLess(line["bubble/idle_over_total"], 1)
            ideal, total = line["bubble/predicted_idle_over_ideal"], line["bubble/predicted_idle_over_total"]
            self.assertAlmostEqual(ideal, 1 / 8, delta=0.05)
            self.assertAlmostEqual(total, ideal / (1 + ideal), places=9)

    def test_evaluates_samples_and_resumes_on_another_pipeline(self):
        data = ["--set=data.tokenizer=bytes", "--set=model.vocab_size=256", "--set=data.valid_fraction=0.1"]
        self.run_trainer(2, "train", self.config, *data, "--set=parallel.pp=2", "--set=train.steps=3")
        of_two = self.run_trainer(2, "eval", self.config, *data, "--set=parallel.pp=2")
        of_one = self.run_trainer(1, "eval", self.config, *data)
        sample = ["sample", self.config, *data, "--prompt=ab", "--tokens=8", "--temperature=0"]
        text_of_four = self.run_trainer(4, *sample, "--set=parallel.pp=4", "--set=parallel.schedule=interleaved")
        text_of_one = self.run_trainer(1, *sample)
        self.run_trainer(4, "train", self.config, *data, "--set=parallel.pp=4", "--set=parallel.schedule=zb_v")

        self.assertEqual(of_two, of_one)
        self.assertEqual(text_of_four, text_of_one)
        self.assertEqual([line["step"] for line in self.metrics()], [1, 2, 3, 4, 5, 6])

    def test_a_killed_stage_ends_all_ranks(self):
        run = subprocess.Popen(self.command(4, "train", self.config, "--set=parallel.pp=4", "--set=train.steps=1000000"),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(run.kill)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.folder, "run", "metrics.jsonl")):
            self.assertLess(time.monotonic(), deadline, "the run did not start")
            time.sleep(0.1)
        ranks = self.ranks_of(run.pid)
        self.assertEqual(len(ranks), 4)

        os.kill(ranks[2], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(map(self.is_running, ranks)) and time.monotonic() < deadline:
            time.sleep(0.05)

        self.assertEqual([pid for pid in ranks if self.is_running(pid)], [])
        self.assertNotEqual(run.wait(timeout=30), 0)

    @staticmethod
    def ranks_of(launcher):
        """Processes of the program below the launcher."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                if parent == launcher and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(OPTIONS.program):
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass
        return sorted(found)

    @staticmethod
    def is_running(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
