"""scripts/setup.sh installs what is missing and nothing else, and says what to do where it cannot.

It runs on a machine that is made up: a PATH with the few tools it uses, and stand-ins for the package manager.
"""
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
REAL_TOOLS = ("bash", "env", "sed", "sort", "head", "cat")
BUILD_TOOLS = ("ninja", "g++", "git", "pkg-config", "mpirun", "python3", "bible")


class Machine:
    """A folder of programs; apt-get and sudo write what they were asked for to `log`."""

    def __init__(self, folder):
        self.bin, self.log = os.path.join(folder, "bin"), os.path.join(folder, "log")
        os.mkdir(self.bin)
        for tool in REAL_TOOLS:
            os.symlink(shutil.which(tool), os.path.join(self.bin, tool))
        for tool in BUILD_TOOLS:
            self.add(tool, "")
        self.add("cmake", "echo cmake version 3.25.1")
        self.add("id", "echo 0")
        self.add("apt-get", f'echo "apt-get $*" >> {self.log}')
        self.set_missing()

    def add(self, name, script):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)

    def remove(self, name):
        os.remove(os.path.join(self.bin, name))

    def set_missing(self, *packages):
        cases = "".join(f"{package}) exit 1;; " for package in packages)
        self.add("dpkg-query", f'for last; do :; done; case "$last" in {cases}*) echo installed;; esac')

    def run(self, *arguments):
        command = [shutil.which("bash"), os.path.join(ROOT, "scripts", "setup.sh"), *arguments]
        return subprocess.run(command, env={"PATH": self.bin}, capture_output=True, text=True, check=False)

    def calls(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)

    def test_does_nothing_where_all_is_there(self):
        result = self.machine.run()

        self.assertEqual((result.returncode, self.machine.calls()), (0, []), result.stderr)

    def test_installs_exactly_what_is_missing(self):
        self.machine.set_missing("libcli11-dev", "clang-format")
        self.machine.remove("mpirun")

        result = self.machine.run("clang-format")

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([call.split(" -q ")[1] for call in self.machine.calls()],
                         ["update", "install -y --no-install-recommends openmpi-bin libcli11-dev clang-format"])
        self.assertIn("installing openmpi-bin libcli11-dev clang-format", result.stdout)

    def test_asks_sudo_where_it_is_not_root(self):
        self.machine.set_missing("libfmt-dev")
        self.machine.add("id", "echo 1000")
        self.machine.add("sudo", f'echo "sudo $*" >> {self.machine.log}; "$@"')

        result = self.machine.run()

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(self.machine.calls()[0].startswith("sudo env DEBIAN_FRONTEND=noninteractive apt-get"))

    def test_names_the_command_where_there_is_neither_root_nor_sudo(self):
        self.machine.set_missing("libfmt-dev")
        self.machine.add("id", "echo 1000")

        result = self.machine.run()

        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install -y --no-install-recommends libfmt-dev", result.stderr)

    def test_names_the_packages_where_there_is_no_apt(self):
        self.machine.remove("apt-get")

        result = self.machine.run()

        self.assertEqual(result.returncode, 1)
        for words in ("not Debian or Ubuntu", "libopenblas-openmp-dev", "ninja-build", "bible-kjv"):
            self.assertIn(words, result.stderr)

    def test_says_what_could_not_be_installed(self):
        self.machine.set_missing("libfmt-dev")
        self.machine.add("apt-get", 'case "$*" in *install*) exit 100;; esac')

        result = self.machine.run()

        self.assertEqual(result.returncode, 1)
        self.assertIn("could not install: libfmt-dev", result.stderr)

    def test_refuses_a_cmake_that_is_too_old(self):
        self.machine.add("cmake", "echo cmake version 3.18.4")

        result = self.machine.run()

        self.assertEqual(result.returncode, 1)
        self.assertIn("CMake 3.18.4 is too old", result.stderr)


if __name__ == "__main__":
    unittest.main()
