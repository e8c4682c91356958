#!/usr/bin/env python3
"""Reads the commands in the ```sh blocks of README.md, so that CI runs what the page tells a newcomer to type.

Usage: readme_commands.py [--run] [--except COMMAND ...]     prints them, one a line; with --run, runs them in order
A command ends at the end of its line; a backslash at the end continues it. Lines that start with # are comments.
"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def commands_of(markdown):
    blocks = re.findall(r"^```sh\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run each command from the repository root")
    parser.add_argument("--except", dest="skipped", nargs="*", default=[], help="commands to leave out")
    args = parser.parse_args()

    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        commands = commands_of(file.read())
    absent = [command for command in args.skipped if command not in commands]
    if absent:
        sys.exit(f"README.md has no sh block with the command(s): {', '.join(absent)}")
    for command in commands:
        if command in args.skipped:
            continue
        print(f"+ {command}" if args.run else command, flush=True)
        if args.run:
            status = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL).returncode
            if status:
                sys.exit(f"README.md: the command '{command}' ended with exit code {status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
