"""Runs that are killed while they save, again and again, end as if nothing had happened.

    save_kill_test.py --program TRAINER --shim LIB [--kills 200] [--seed S] -- MPIEXEC [FLAG...]

A victim is killed in one of four ways: the whole job at once, one rank, rank 0 at a call on the files of a commit,
rank 0 while it deletes an old checkpoint. The next start is at the same time the proof and the next victim. After each
kill all that has a checkpoint's name must be whole, the newest checkpoint that was acknowledged must be there or a
newer one, and the next start must go on from it. The seed draws layouts, ways and calls; moments are the clock's.
"""
import argparse
import collections
import os
import random
import re
import sys
import tempfile
import time

import tiny_job

STEPS = 150
KILLS_OF_A_RUN = 12
LAYOUTS = [
    (2, []),
    (2, ["parallel.zero_stage=1"]),
    (2, ["parallel.zero_stage=3"]),
    (2, ["parallel.tp=2"]),
    (2, ["parallel.pp=2"]),
    (3, ["train.global_batch_size=6", "parallel.zero_stage=2"]),
    (4, ["parallel.tp=2", "parallel.zero_stage=1"]),
    (4, ["parallel.pp=2", "parallel.tp=2"]),
]
# What rank 0 calls in a commit, and how often one save does so at the most.
COMMIT_CALLS = [
    ("open", "*/index.h5*", 3), ("write", "*/index.h5*", 20), ("fsync", "*/index.h5*", 1), ("rename", "*/index.h5*", 1),
    ("open", "*/MANIFEST.json*", 1), ("write", "*/MANIFEST.json*", 1), ("fsync", "*/MANIFEST.json*", 1),
    ("rename", "*/MANIFEST.json*", 1), ("fsync", "*/step_*.tmp-????????-????", 3), ("rename", "*/step_????????", 1),
    ("fsync", "*/checkpoints", 2), ("open", "*/latest*", 1), ("fsync", "*/latest*", 1), ("rename", "*/latest*", 1),
    ("open", "*/rank_00000.h5*", 3), ("fsync", "*/rank_00000.h5*", 1), ("rename", "*/rank_00000.h5*", 1),
]
# And in deleting old checkpoints, or at start what the last kill left.
RETENTION_CALLS = [("rename", "*/trash_*", 1), ("remove", "*/checkpoints/*", 8)]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


def require(condition, message):
    if not condition:
        raise AssertionError(message)


class Victim:
    """One run, from its first start to its end."""

    def __init__(self, job, draw):
        self.job = job
        self.draw = draw
        self.acknowledged = 0
        self.ways = []  # still to come
        self.kills = collections.Counter()
        self.moments = collections.Counter()  # what a kill left behind

    def is_killed(self):
        """One start, killed in a way that is drawn. False: it came to its end before."""
        newest = max(self.job.checkpoints(), default=0)
        num_starts = self.num_starts()
        way = self.next_way()
        run = self.job.start(fault=self.fault_of(way))
        try:
            if way in ("job", "rank"):
                self.wait_for_a_moment(run, num_starts)
                ranks = self.job.ranks_below(run.pid)
                self.look_at_names()
                tiny_job.kill([run.pid] + ranks if way == "job" else ranks and [self.draw.choice(ranks)])
            while run.poll() is None:
                self.look_at_names()
                time.sleep(0.005)
        finally:
            tiny_job.kill(self.job.ranks_below(run.pid) + [run.pid])
        require(run.returncode in (0, 137, -9), f"ended with {run.returncode}:\n{self.job.output()}")
        self.check_start(newest, num_starts)
        if run.returncode == 0:
            return False
        self.check_what_is_left()
        self.kills[way] += 1
        return True

    def next_way(self):
        if not self.ways:
            self.ways = self.draw.sample(["job", "rank", "commit", "retention"], 4)
        return self.ways.pop()

    def fault_of(self, way):
        if way in ("job", "rank"):
            return ""
        op, path, calls = self.draw.choice(COMMIT_CALLS if way == "commit" else RETENTION_CALLS)
        at = self.draw.randint(1, 3 * calls)
        return f"op={op} path={path} rank=0 at={at} do={self.draw.choice(['kill', 'kill_after'])}"

    def wait_for_a_moment(self, run, num_starts):
        """Mostly while it trains and saves, sometimes while it starts."""
        if self.draw.random() < 0.1:
            time.sleep(self.draw.uniform(0.1, 0.5))
            return
        tiny_job.wait_until(lambda: self.num_starts() > num_starts or run.poll() is not None, 60)
        time.sleep(self.draw.uniform(0, 0.15))

    def num_starts(self):
        return len(re.findall(r" plan [0-9a-f]{16}: ", self.job.text("run/log.txt")))

    def look_at_names(self):
        """What has its name is acknowledged."""
        self.acknowledged = max([self.acknowledged, *self.job.checkpoints()])

    def check_start(self, newest, num_starts):
        """That it went on from the newest checkpoint, where it came so far as to say so."""
        log = self.job.text("run/log.txt")
        starts = re.split(r"(?m)^(?=\S+ \S+ trainer )", log)[1:]
        if newest == 0 or self.num_starts() == num_starts:
            return
        match = re.search(r"resumed from (\S+) at step (\d+)", starts[-1])
        if match is None and "saved " not in starts[-1] and " step " not in starts[-1]:
            return  # killed between two lines
        require(match and int(match[2]) == newest and match[1].endswith(f"step_{newest:08d}"),
                f"did not resume from step {newest}:\n{starts[-1]}")
        require(" warning: " not in starts[-1], starts[-1])

    def check_what_is_left(self):
        names = self.job.names()
        saved = re.findall(r"saved \S*/step_(\d{8}) in ", self.job.text("run/log.txt"))
        self.acknowledged = max([self.acknowledged, *map(int, saved)])
        newest = max(self.job.checkpoints(), default=0)
        require(newest >= self.acknowledged, f"step {self.acknowledged} was acknowledged; there are only {names}")
        require(not self.job.damage(), self.job.damage())
        steps = [line["step"] for line in self.job.metrics()]
        require(steps == list(range(1, len(steps) + 1)), f"metrics have the steps {steps}")
        require(len(steps) >= newest, f"metrics end at step {len(steps)}, before checkpoint {newest}")
        self.moments["saving"] += any(".tmp-" in name for name in names)
        self.moments["deleting"] += any(name.startswith("trash_") for name in names)

    def check_end(self, unbroken):
        """The same numbers in metrics and checkpoint as a run that nobody killed, and that saved at its end only."""
        every = STEPS - min(self.job.checkpoints())
        require(every in (1, 2) and self.job.names() == ["latest", f"step_{STEPS - every:08d}", f"step_{STEPS:08d}"],
                f"there are {self.job.names()}")
        last = f"run/checkpoints/step_{STEPS:08d}"
        code, text = self.job.checkpoint_command("diff", self.job.path(last), unbroken.path(last))
        require(code == 0, text)
        for line, expected in zip(self.job.metrics(), unbroken.metrics(), strict=True):
            for name in ("step", "samples", "loss", "grad_norm", "lr"):
                require(line[name] == expected[name],
                        f"{name} of step {line['step']}: {line[name]}, not {expected[name]}")


def kill_one_run(options, draw, num_ranks, layout, most_kills):
    """Gives its victim, finished."""
    settings = layout + [f"train.steps={STEPS}", f"checkpoint.every_steps={draw.choice([1, 2])}",
                         f"checkpoint.async={draw.choice(['true', 'false'])}"]
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for name in ("victim", "unbroken"):
            os.mkdir(os.path.join(folder, name))
            jobs.append(tiny_job.Job(os.path.join(folder, name), options.mpiexec, options.program, options.shim,
                                     num_ranks, settings))
        victim, unbroken = Victim(jobs[0], draw), jobs[1]
        try:
            while sum(victim.kills.values()) < most_kills and victim.is_killed():
                pass
            require(victim.job.run() == 0, victim.job.output())
            require(unbroken.run("checkpoint.every_steps=0") == 0, unbroken.output())
            victim.check_end(unbroken)
        except AssertionError as error:
            where = f"{num_ranks} ranks with {' '.join(settings)}, after {dict(victim.kills)}"
            raise AssertionError(f"{where}: {error}\nlog:\n{victim.job.text('run/log.txt')[-3000:]}") from error
    print(f"{num_ranks} ranks with {' '.join(settings)}: {dict(victim.kills)}", flush=True)
    return victim


def main():
    options = arguments()
    # the other ranks of a dead one are killed at once, not after a second
    os.environ["OMPI_MCA_odls_base_sigkill_timeout"] = "0"
    draw = random.Random(options.seed)
    kills, moments = collections.Counter(), collections.Counter()
    begin = time.monotonic()
    try:
        layouts = []
        while sum(kills.values()) < options.kills:
            layouts = layouts or draw.sample(LAYOUTS, len(LAYOUTS))
            most_kills = min(KILLS_OF_A_RUN, options.kills - sum(kills.values()))
            victim = kill_one_run(options, draw, *layouts.pop(), most_kills)
            kills += victim.kills
            moments += victim.moments
    except AssertionError as error:
        print(f"seed {options.seed}, after {dict(kills)}: {error}")
        return 1
    print(f"{sum(kills.values())} kills ({dict(kills)}) in {time.monotonic() - begin:.0f} s; {moments['saving']} left "
          f"a save behind, {moments['deleting']} a deletion; each start went on from the newest checkpoint")
    return 0


if __name__ == "__main__":
    sys.exit(main())
