"""The program under Slurm, on a cluster of one node that this test starts and stops: slurm_test.py TRAINER RANK_TEST

Exit code 77, with the reason, where Slurm is not installed and cannot be.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
TRAINER, RANK_TEST = (os.path.abspath(path) for path in sys.argv[1:3])
CLUSTER = os.path.join(ROOT, "scripts", "slurm", "local_cluster.sh")
TEMPLATE = os.path.join(ROOT, "scripts", "slurm", "train.sbatch")
CANNOT_INSTALL = 69
SKIPPED = 77

# Four ranks and two kinds of splits; needs no data file.
LAYOUT = """
[run]
name = "layout"
[model]
vocab_size = 61
num_layers = 2
hidden_size = 32
num_heads = 4
seq_len = 16
[parallel]
tp = 2
zero_stage = 1
[train]
steps = 4
global_batch_size = 4
[optimizer]
lr = 1e-2
[data]
train = "absent"
"""

# Makes of the quickstart a run of seconds.
SMALL = ("--set", "model.num_layers=1", "--set", "train.global_batch_size=2", "--set", "train.eval_steps=2", "--set",
         "lr_schedule.warmup_steps=5")


def call(*command, timeout=60, **options):
    """Exit code and all that was printed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=timeout, check=False, **options)
    return done.returncode, done.stdout


def wait_until(condition, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what()}")
        time.sleep(0.05)


class Cluster:
    """Lives in a folder of its own, so that it meets no other; the folder's name is short, for the sockets in it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="slurm_test_", dir="/tmp")
        os.chmod(self.folder, 0o755)

    def start(self):
        code, said = call(CLUSTER, "start", "--folder", self.folder, timeout=400)
        os.environ["SLURM_CONF"] = os.path.join(self.folder, "slurm.conf")
        return code, said

    def stop(self):
        code, said = call(CLUSTER, "stop", "--folder", self.folder, timeout=120)
        shutil.rmtree(self.folder)
        return code, said


class Launch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.config = os.path.join(self.folder, "layout.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(LAYOUT)

    def srun(self, *arguments, timeout=120):
        return call("srun", *arguments, timeout=timeout, cwd=self.folder)

    def expect_refusal(self, arguments, words):
        """One message, exit code 3, within 5 s, nothing written."""
        start = time.monotonic()
        code, said = self.srun(*arguments, timeout=60)
        seconds = time.monotonic() - start
        self.assertEqual(code, 3, said)
        self.assertLess(seconds, 5)
        for word in words:
            self.assertEqual(said.count(word), 1, said)
        self.assertEqual(os.listdir(self.folder), ["layout.toml"])

    def test_communicators_work_under_pmix(self):
        code, said = self.srun("--mpi=pmix", "-n", "4", RANK_TEST)

        self.assertEqual(code, 0, said)

    def test_verify_passes_on_four_ranks(self):
        code, said = self.srun("--mpi=pmix", "-n", "4", TRAINER, "verify", self.config)

        self.assertEqual(code, 0, said)

    def test_refuses_ranks_that_do_not_know_of_each_other(self):
        self.expect_refusal(("--mpi=none", "-n", "4", TRAINER, self.config),
                            ("SLURM_STEP_NUM_TASKS = 4", "a world of 1", "--mpi=pmix"))

    def test_refuses_a_world_that_the_layout_does_not_divide(self):
        self.expect_refusal(("--mpi=pmix", "-n", "3", TRAINER, "verify", self.config), ("does not divide the 3 ranks",))


class Job(unittest.TestCase):
    """The template, submitted as its first lines say."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.symlink(os.path.join(ROOT, "configs"), os.path.join(self.folder, "configs"))
        os.makedirs(os.path.join(self.folder, "build", "release", "bin"))
        os.symlink(TRAINER, os.path.join(self.folder, "build", "release", "bin", "trainer"))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def make_data(self):
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{i} times {i} is {i * i}\n" for i in range(3000))
        code, said = call(TRAINER, "data", "build", "text.txt", "--output", "data_cache/bible", "--tokenizer", "bytes",
                          "--documents", "lines", cwd=self.folder)
        self.assertEqual(code, 0, said)

    def submit(self, *arguments):
        code, said = call("sbatch", "--parsable", "--cpus-per-task=1", TEMPLATE, *arguments, cwd=self.folder)
        self.assertEqual(code, 0, said)
        self.job = said.strip()
        self.addCleanup(call, "scancel", "--quiet", self.job)

    def log(self):
        with open(self.path(f"train-{self.job}.log"), encoding="utf-8") as file:
            return file.read()

    def shown(self, field):
        _, said = call("scontrol", "--oneliner", "show", "job", self.job)
        return dict(word.split("=", 1) for word in said.split() if "=" in word).get(field)

    def steps(self):
        path = self.path("runs", "quickstart", "metrics.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            records = [json.loads(line) for line in file if line.endswith("\n")]
        return [record["step"] for record in records if "loss" in record]

    def has_ended(self):
        return self.shown("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")

    def wait_for_three_steps(self):
        wait_until(lambda: len(self.steps()) >= 3 or self.has_ended(), lambda: f"three steps\n{self.log()}")
        self.assertFalse(self.has_ended(), self.log())

    def wait_for_end(self):
        wait_until(self.has_ended,
                   lambda: f"the end of job {self.job}, which is {self.shown('JobState')}\n{self.log()}")

    def test_a_signal_saves_and_the_requeued_job_goes_on(self):
        self.make_data()
        self.submit("configs/quickstart.toml", *SMALL, "--set", "train.steps=20")

        self.wait_for_three_steps()
        call("scancel", "--signal=TERM", self.job)
        self.wait_for_end()

        self.assertEqual((self.shown("JobState"), self.shown("Restarts")), ("COMPLETED", "1"), self.log())
        self.assertEqual(self.steps(), list(range(1, 21)))
        for words in ("start 1,", "ended with exit code 75", "start 2,", "ended with exit code 0"):
            self.assertEqual(self.log().count(words), 1, self.log())

    def test_a_run_can_be_saved_and_stopped(self):
        self.make_data()
        self.submit("configs/quickstart.toml", *SMALL, "--set", "train.steps=5000")

        self.wait_for_three_steps()
        call("scontrol", "update", f"jobid={self.job}", "requeue=0")
        call("scancel", "--signal=TERM", self.job)
        self.wait_for_end()

        self.assertEqual((self.shown("JobState"), self.shown("ExitCode")), ("FAILED", "75:0"), self.log())

    def test_other_failures_end_the_job(self):
        self.submit("configs/quickstart.toml", "--set", "model.num_layers=0")

        self.wait_for_end()

        self.assertEqual((self.shown("ExitCode"), self.shown("Restarts")), ("2:0", "0"), self.log())
        self.assertIn("num_layers", self.log())


def main():
    is_installed = all(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") for name in ("slurmctld", "munged"))
    if not is_installed and os.geteuid() != 0:
        print("skipped: Slurm is not installed, and installing it needs root. Fix: scripts/setup.sh slurm-wlm munge")
        return SKIPPED
    cluster = Cluster()
    try:
        code, said = cluster.start()
        print(said)
        if code == CANNOT_INSTALL:
            print("skipped: Slurm could not be installed; the reason is above.")
            return SKIPPED
        if code != 0:
            return 1
        result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False, verbosity=2).result
        return 0 if result.wasSuccessful() else 1
    finally:
        print(cluster.stop()[1])


if __name__ == "__main__":
    sys.exit(main())
