"""What runs make of storage that fails: save_faults_test.py --program TRAINER --shim LIB -- MPIEXEC [FLAG...]"""
import argparse
import ctypes
import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import tiny_job

MAX_FAILED_SAVES = 3  # the default of checkpoint.max_failed_saves

# Operation and path of what is struck. Rank 1 has a shard only; all else is rank 0's.
SHARD_FAULTS = [(op, "*/rank_0000{rank}.h5*") for op in ("open", "fallocate", "fsync", "rename")]
COMMIT_FAULTS = [("fsync", "*/index.h5*"), ("rename", "*/index.h5*")]
COMMIT_FAULTS += [(op, "*/MANIFEST.json*") for op in ("open", "write", "fsync", "rename")]
FOLDER_FAULTS = [("fsync", "*/shards/000"), ("fsync", "*/step_*.tmp-????????-????"), ("rename", "*/step_????????"),
                 ("fsync", "*/checkpoints")]
MKDIR_FAULTS = [("mkdir", "*/step_*.tmp-????????-????"), ("mkdir", "*/shards"), ("mkdir", "*/shards/000")]
# What comes after a checkpoint is published.
TIDYING_FAULTS = [(op, "*/latest*") for op in ("open", "write", "fsync", "rename")]
# HDF5 makes these calls.
HDF5_FAULTS = [("open", "*/index.h5*"), ("write", "*/index.h5*"), ("write", "*/rank_00000.h5*"),
               ("truncate", "*/rank_00000.h5*"), ("close", "*/rank_00000.h5*")]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


OPTIONS = arguments()


class SaveFaults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def job(self, num_ranks=2, settings=()):
        folder = tempfile.mkdtemp(dir=self.folder)
        return tiny_job.Job(folder, OPTIONS.mpiexec, OPTIONS.program, OPTIONS.shim, num_ranks, settings)

    def expect_whole(self, job, steps):
        """These checkpoints, good, and nothing half-made."""
        self.assertEqual(job.names(), ["latest"] + [f"step_{step:08d}" for step in steps], job.output())
        self.assertEqual(job.damage(), "")

    def expect_one_save_lost(self, job, op, path, rank, error):
        """The first of three fails. Gives the warning."""
        code = job.run("checkpoint.async=false", fault=f"op={op} path={path} rank={rank} do={error}")

        self.assertEqual(code, 0, job.output())
        self.assertEqual([line["step"] for line in job.metrics()], [1, 2, 3, 4, 5, 6])
        warnings = [text for text in job.text("run/log.txt").split("\n2") if "warning: " in text]
        self.assertEqual(len(warnings), 1, job.text("run/log.txt"))
        self.assertIn("Save 1 of at most 3 that may fail in a row; training goes on.", warnings[0])
        self.assertIn("Fix: ", warnings[0])
        self.expect_whole(job, [4, 6])
        return warnings[0]

    def test_an_error_costs_one_save_and_says_where_and_why(self):
        faults = [(*fault, rank) for rank in (0, 1) for fault in SHARD_FAULTS]
        faults += [(*fault, 0) for fault in COMMIT_FAULTS + FOLDER_FAULTS + MKDIR_FAULTS]
        for (op, path, rank), error in zip(faults, itertools.cycle(("ENOSPC", "EIO", "ESTALE", "EIO"))):
            with self.subTest(op=op, path=path, rank=rank, error=error):
                job = self.job(num_ranks=1 if op == "mkdir" else 2)  # of two, the first makes it for both
                warning = self.expect_one_save_lost(job, op, path.format(rank=rank), rank, error)

                self.assertIn(os.strerror(getattr(errno, error)), warning)
                self.assertIn("/run/checkpoints", warning)
                if "rank_" in path:
                    self.assertIn(f"warning: rank {rank}: ", warning)
                    self.assertIn(f"/rank_{rank:05d}.h5", warning)
                elif op != "mkdir" and not path.endswith("?"):
                    self.assertIn(path.strip("*"), warning)

    def test_an_error_that_hdf5_meets_costs_one_save_too(self):
        for op, path in HDF5_FAULTS:
            with self.subTest(op=op, path=path):
                warning = self.expect_one_save_lost(self.job(), op, path, 0, "EIO")

                self.assertIn(path.strip("*"), warning)
                self.assertIn(os.strerror(errno.EIO), warning)

    def test_what_fails_after_a_checkpoint_is_published_costs_nothing(self):
        for op, path in TIDYING_FAULTS + [("rename", "*/step_00000002")]:
            for times in (1, 0):  # 0: for ever
                with self.subTest(op=op, path=path, times=times):
                    job = self.job(settings=["checkpoint.async=false", "checkpoint.max_failed_saves=1"])
                    # the first open is the question at start whether one may write, the first rename the publication
                    at = 2 if op in ("open", "rename") and (op, path) != ("rename", "*/latest*") else 1

                    code = job.run(fault=f"op={op} path={path} rank=0 at={at} times={times} do=EIO")

                    self.assertEqual(code, 0, job.output())
                    self.assertIn(os.strerror(errno.EIO), job.text("run/log.txt"))
                    self.assertNotIn("that may fail in a row", job.output())
                    self.assertLessEqual({4, 6}, set(job.checkpoints()))
                    self.assertEqual(job.damage(), "")

    def test_a_direct_write_that_fails_is_done_in_the_ordinary_way(self):
        for rank in (0, 1):
            job = self.job(settings=["model.hidden_size=128"])

            code = job.run(fault=f"op=write_direct path=*/rank_0000{rank}.h5* rank={rank} do=EIO")

            self.assertEqual(code, 0, job.output())
            self.assertNotIn("warning: ", job.output())
            self.expect_whole(job, [4, 6])
            if "storage fault: " not in job.output():
                self.skipTest("this file system has no direct writes")

    def test_an_interrupted_call_is_repeated(self):
        for fault in ("op=write at=1", "op=write at=12", "op=fallocate"):
            with self.subTest(fault=fault):
                job = self.job()

                self.assertEqual(job.run(fault=f"{fault} path=*/rank_0000?.h5* do=EINTR"), 0)

                self.assertIn("storage fault: ", job.output())
                self.assertNotIn("warning: ", job.output())
                self.expect_whole(job, [4, 6])

    def test_too_many_failed_saves_end_the_run_and_leave_the_older_checkpoint(self):
        for op, path, rank in [("fallocate", "*/rank_00001.h5*", "rank=1"), ("fsync", "*/index.h5*", "rank=0"),
                               ("rename", "*/step_????????", "rank=0"), ("mkdir", "*/step_*", "")]:
            for is_async in ("true", "false"):
                with self.subTest(op=op, path=path, is_async=is_async):
                    job = self.job(settings=[f"checkpoint.async={is_async}"])
                    self.assertEqual(job.run("train.steps=2"), 0, job.output())

                    code = job.run("train.steps=100", fault=f"op={op} path={path} {rank} times=0 do=ENOSPC")

                    self.assertEqual(code, 6, job.output())
                    self.assertEqual(job.text("run/log.txt").count("that may fail in a row"), MAX_FAILED_SAVES)
                    steps = job.metrics()[-1]["step"]
                    self.assertLess(steps, 2 + 2 * (MAX_FAILED_SAVES + 3), "it ended with the save, or soon after")
                    self.assertEqual(list(job.checkpoints()), [2])
                    self.assertEqual(job.damage(), "")
                    self.assertEqual(job.run(), 0, job.output())  # and goes on where it was
                    self.assertIn("step_00000002 at step 2", job.text("run/log.txt"))
                    self.expect_whole(job, [4, 6])

    def test_the_last_save_may_not_fail(self):
        for is_async in ("true", "false"):
            job = self.job(settings=[f"checkpoint.async={is_async}"])

            code = job.run(fault="op=rename path=*/step_00000006 times=0 do=EIO")

            self.assertEqual(code, 6, job.output())
            self.assertIn("step_00000006: the new checkpoint cannot be given its name: Input/output", job.output())
            self.assertEqual(list(job.checkpoints()), [2, 4])
            self.assertEqual(job.damage(), "")

    def test_a_folder_closed_to_writing_is_refused_at_once(self):
        for error in ("EROFS", "EACCES"):
            for folder in ("run", "run/checkpoints"):
                with self.subTest(error=error, folder=folder):
                    job = self.job()
                    os.makedirs(job.path(folder))
                    path = job.path(folder) + ("/*" if folder == "run" else "*")
                    begin = time.monotonic()

                    code = job.run("train.steps=100000",
                                   fault=f"op=open,mkdir,rename,remove path={path} times=0 do={error}")

                    self.assertEqual(code, 6, job.output())
                    self.assertLess(time.monotonic() - begin, 20)
                    self.assertEqual(job.output().count(os.strerror(getattr(errno, error))), 1, job.output())
                    self.assertEqual(job.output().count("Fix: "), 1, job.output())
                    self.assertEqual(job.names(), [])
                    self.assertFalse(os.path.exists(job.path("run/metrics.jsonl")))

    def test_256_descriptors_are_enough(self):
        job = self.job(4, ["model.num_layers=24", "parallel.zero_stage=1", "checkpoint.every_steps=1"])

        def few_descriptors():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        for steps in (3, 6):
            self.assertEqual(job.run(f"train.steps={steps}", preexec_fn=few_descriptors), 0, job.output())
        self.assertIn("at step 3", job.text("run/log.txt"))
        self.assertNotIn("warning: ", job.text("run/log.txt"))
        for name in job.checkpoints().values():
            done = subprocess.run([OPTIONS.program, "checkpoint", "verify", job.path("run/checkpoints", name)],
                                  preexec_fn=few_descriptors, stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_full_disk_keeps_what_it_has_and_goes_on_when_there_is_room(self):
        job = self.job(settings=["checkpoint.keep_last=0", "checkpoint.max_failed_saves=1"])
        disk = job.path("disk")
        self.mount_tmpfs(disk, "7m")
        job.settings.append(f"--set=checkpoint.dir={disk}")

        code = job.run("train.steps=100")

        self.assertEqual(code, 6, job.output())
        self.assertIn("No space left on device", job.output())
        whole = sorted(name for name in os.listdir(disk) if name.startswith("step_"))
        self.assertGreaterEqual(len(whole), 2, job.output())
        for name in whole:
            self.assertRegex(name, r"^step_\d{8}$")
            code, text = job.checkpoint_command("verify", os.path.join(disk, name))
            self.assertEqual(code, 0, text)

        self.assertEqual(job.run("train.steps=100"), 6, job.output())
        self.assertRegex(job.output(), r"takes [\d.]+ MB, and [\d.]+ MB are free there")
        self.assertEqual(job.checkpoint_command("prune", disk, "--keep-last", "1")[0], 0)
        last = int(whole[-1][5:])
        self.assertEqual(job.run(f"train.steps={last + 2}"), 0, job.output())
        self.assertIn(f"{whole[-1]} at step {last}", job.text("run/log.txt"))

    def mount_tmpfs(self, folder, size):
        """In a name space of our own, so that nothing stays when this test is killed."""
        new_namespace = 0x00020000  # CLONE_NEWNS
        os.mkdir(folder)
        if ctypes.CDLL(None, use_errno=True).unshare(new_namespace) != 0:
            self.skipTest("a disk of a few megabytes takes rights that we lack")
        for command in (["mount", "--make-rprivate", "/"],
                        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]):
            if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0:
                self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", folder], check=False)

    def test_a_second_run_in_the_same_folder_is_refused(self):
        job = self.job(settings=["checkpoint.every_steps=20"])
        first = job.start("train.steps=1000000")
        self.addCleanup(first.kill)
        self.assertTrue(tiny_job.wait_until(job.checkpoints, 60), job.output())

        with open(job.path("second.txt"), "w", encoding="utf-8") as file:
            second = job.start("train.steps=1000000", output=file)
            code = second.wait(timeout=60)

        self.assertEqual(code, 3)
        self.assertIn("/run/lock is held by process ", job.text("second.txt"))
        self.assertEqual(job.text("second.txt").count("Fix: "), 1)
        self.assertIsNone(first.poll(), "the first goes on")
        for pid in job.ranks_below(first.pid):
            os.kill(pid, signal.SIGTERM)
        self.assertEqual(first.wait(timeout=60), 75, job.output())
        steps = [line["step"] for line in job.metrics()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertEqual(job.damage(), "")

    def test_a_pinned_checkpoint_stays_when_its_step_is_saved_again(self):
        job = self.job(settings=["checkpoint.keep_last=0"])
        self.assertEqual(job.run(), 0, job.output())
        with open(job.path("run/checkpoints/step_00000004/KEEP"), "w", encoding="utf-8"):
            pass

        for time_around in (1, 2):
            code = job.run(f"checkpoint.resume={job.path('run/checkpoints/step_00000002')}")

            self.assertEqual(code, 0, job.output())
            self.assertIn("step_00000004.kept-1", job.names())
            self.assertEqual(list(job.checkpoints()), [2, 4, 6], f"time {time_around}")
        self.assertEqual(job.damage(), "")
        self.assertEqual(job.checkpoint_command("verify", job.path("run/checkpoints/step_00000004.kept-1"))[0], 0)

    def test_a_run_that_went_back_never_lacks_a_checkpoint_it_saves_again(self):
        calls = [("rename", "*/step_00000004", 1), ("rename", "*/step_00000004", 2)]
        calls += [("remove", "*/step_00000004.tmp-*", at) for at in (1, 3, 5)]
        for op, path, at in calls:
            for action in ("kill", "kill_after"):
                with self.subTest(op=op, at=at, action=action):
                    job = self.job(settings=["checkpoint.keep_last=0"])
                    self.assertEqual(job.run(), 0, job.output())

                    code = job.run(f"checkpoint.resume={job.path('run/checkpoints/step_00000002')}",
                                   fault=f"op={op} path={path} rank=0 at={at} do={action}")

                    self.assertIn(code, (137, 255), job.output())
                    self.assertEqual(list(job.checkpoints()), [2, 4, 6])
                    self.assertEqual(job.damage(), "")
                    self.assertEqual(job.run("train.steps=8"), 0, job.output())
                    self.expect_whole(job, [2, 4, 6, 8])

    def test_a_checkpoint_is_saved_again_where_names_cannot_be_exchanged(self):
        job = self.job(settings=["checkpoint.keep_last=0"])
        self.assertEqual(job.run(), 0, job.output())
        old = os.stat(job.path("run/checkpoints/step_00000004"))

        # the second rename: the first finds the name taken
        code = job.run(f"checkpoint.resume={job.path('run/checkpoints/step_00000002')}",
                       fault="op=rename path=*/step_00000004 rank=0 at=2 do=EINVAL")

        self.assertEqual(code, 0, job.output())
        self.assertNotIn("warning: ", job.output())
        self.expect_whole(job, [2, 4, 6])
        self.assertNotEqual(os.stat(job.path("run/checkpoints/step_00000004")).st_ino, old.st_ino)

    def test_a_signal_amid_a_save_leaves_a_whole_checkpoint(self):
        for target in ("ranks", "one rank"):
            for is_async in ("true", "false"):
                with self.subTest(target=target, is_async=is_async):
                    job = self.job(settings=["train.steps=1000000", f"checkpoint.async={is_async}"])
                    run = job.start(fault="op=fsync path=*/index.h5* at=3 do=wait")
                    self.addCleanup(run.kill)
                    self.assertTrue(tiny_job.wait_until(lambda: any(".tmp-" in name for name in os.listdir(
                        job.path("run/checkpoints"))) if job.checkpoints() else False, 60))
                    time.sleep(0.2)
                    ranks = job.ranks_below(run.pid)
                    for pid in ranks if target == "ranks" else ranks[1:]:
                        os.kill(pid, signal.SIGTERM)

                    self.assertEqual(run.wait(timeout=60), 75, job.output())
                    self.assertEqual(job.damage(), "")
                    newest = max(job.checkpoints())
                    self.assertEqual(job.metrics()[-1]["step"], newest)
                    self.assertFalse([name for name in job.names() if "tmp-" in name or "trash_" in name])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
