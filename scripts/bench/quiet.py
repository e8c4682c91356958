"""Runs commands for timing on a machine that others may use, too.

A run starts when others leave the machine alone, and is done again when they did not while it ran. What others use is
what /proc/stat counts for all processes less what the run itself used.
"""
import dataclasses
import os
import subprocess
import tempfile
import time

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Finished:
    stdout: str
    others: float      # CPUs that other processes kept busy during the run, on average
    peak_bytes: int    # high-water mark of resident memory


def busy_seconds():
    """CPU time used by everything since boot: user, nice, system, irq, softirq, steal."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(x) for x in file.readline().split()[1:9]]
    return sum(ticks[i] for i in (0, 1, 2, 5, 6, 7)) / TICKS_PER_SECOND


def wait_for_quiet(max_others, max_seconds):
    """Returns after a second in which at most `max_others` CPUs were busy; gives up after max_seconds."""
    give_up = time.monotonic() + max_seconds
    while time.monotonic() < give_up:
        busy, begin = busy_seconds(), time.monotonic()
        time.sleep(1)
        if (busy_seconds() - busy) / (time.monotonic() - begin) <= max_others:
            return


def one_cpu_per_core():
    """The CPUs this process may use, first one of each physical core, then the siblings."""
    def siblings(cpu):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return str(cpu)

    first, rest, seen = [], [], set()
    for cpu in sorted(os.sched_getaffinity(0)):
        (rest if siblings(cpu) in seen else first).append(cpu)
        seen.add(siblings(cpu))
    return first + rest


def run_once(command, environment, num_threads):
    """On `num_threads` CPUs of their own: a program that asks how many it has gets that answer."""
    cpus = one_cpu_per_core()[:num_threads]
    busy, begin = busy_seconds(), time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                   preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        elapsed = time.monotonic() - begin
        output.seek(0), errors.seek(0)
        text, complaint = output.read(), errors.read()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{(text + complaint)[-4000:]}")
    others = (busy_seconds() - busy - usage.ru_utime - usage.ru_stime) / elapsed
    return Finished(text, max(0.0, others), usage.ru_maxrss * 1024)


def run(command, environment, num_threads, patience):
    """The first run that others left alone, or the one they disturbed least of patience.attempts."""
    spare = len(os.sched_getaffinity(0)) - num_threads
    allowed = patience.max_others + 0.5 * min(1, spare)  # a core that the run does not use may be used by others
    finished = []
    for _ in range(patience.attempts):
        wait_for_quiet(patience.max_others, patience.wait_seconds)
        finished.append(run_once(command, environment, num_threads))
        if finished[-1].others <= allowed:
            break
    return min(finished, key=lambda one: one.others)
