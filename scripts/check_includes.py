#!/usr/bin/env python3
"""Holds the sources to the rules that the compiler cannot see.

  arrows      a folder includes only the folders it may use (ALLOWED below)
  backends    tensor/cpu, tensor/cuda and tensor/paper are included by themselves and their tests only, never by one another
  root        #include "..." names a file from the repository root; <...> never names one of ours
  once        every header starts with #pragma once
  no #if      no preprocessor condition on a backend outside that backend's folder: CMake picks files
  no getenv   environment variables are read by main() alone, with trainer/launch_environment.cpp

Usage: check_includes.py [ROOT]. Prints one line a violation, with how to fix it; exits 1 if there is any.
"""
import os
import re
import sys

ALLOWED = {
    "tensor": set(),
    "parallel": {"tensor"},
    "model": {"parallel", "tensor"},
    "data": {"tensor"},
    "checkpoint": {"parallel", "tensor"},
    "trainer": {"model", "data", "checkpoint", "parallel", "tensor"},
    "tests": {"trainer", "model", "data", "checkpoint", "parallel", "tensor"},
}
BACKENDS = ("tensor/cpu", "tensor/cuda", "tensor/paper")
READS_ENVIRONMENT = ("trainer/main.cpp", "trainer/launch_environment.cpp")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)")
BACKEND_NAME = re.compile(r"CUDA|NVCC|CUBLAS|CUDNN|NCCL|OPENBLAS|DNNL|ONEDNN|MKL|BLIS", re.IGNORECASE)
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b\s*[\[;)]")


def sources(root):
    for folder in ALLOWED:
        for path, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith((".h", ".cpp", ".cu", ".cuh")):
                    yield os.path.relpath(os.path.join(path, name), root).replace(os.sep, "/")


def backend_of(path):
    return next((b for b in BACKENDS if path.startswith(b + "/")), None)


def check_include(root, path, bracket, target):
    """What is wrong with this #include, or None."""
    folder, target_folder = path.split("/")[0], target.split("/")[0]
    ours = "/" in target and target_folder in ALLOWED
    if bracket == "<":
        return f'our own headers are included with quotes: #include "{target}"' if ours else None
    if ".." in target.split("/") or not os.path.isfile(os.path.join(root, target)):
        return f'"{target}" is no file from the repository root; write the path from there, or <...> if it is not ours'
    if ours and target_folder != folder and target_folder not in ALLOWED[folder]:
        allowed = ", ".join(sorted(ALLOWED[folder])) or "no other folder"
        return f"{folder}/ must not use {target_folder}/ (it may use {allowed}); move the code, or hand the object in"
    backend = backend_of(target)
    if backend and not path.startswith((backend + "/", "tests/tensor/")):
        return f"{backend}/ is private to the backend; use tensor/ops.h and tensor/device.h"
    return None


def check_line(root, path, line):
    include, condition = INCLUDE.match(line), CONDITION.match(line)
    if include:
        return check_include(root, path, include[1], include[2])
    if condition and BACKEND_NAME.search(condition[1]) and not backend_of(path):
        return "a preprocessor condition on a backend; put the code in a file that CMake picks"
    if ENVIRONMENT.search(line) and path not in READS_ENVIRONMENT and not path.startswith("tests/"):
        return f"environment variables are read in {READS_ENVIRONMENT[0]} only; hand the value down"
    return None


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        lines = file.read().splitlines()
    if path.endswith((".h", ".cuh")) and "#pragma once" not in lines:
        yield f"{path}:1: the header lacks #pragma once"
    for number, line in enumerate(lines, 1):
        problem = check_line(root, path, line)
        if problem:
            yield f"{path}:{number}: {problem}"


def check(root):
    return [problem for path in sources(root) for problem in check_file(root, path)]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    problems = check(root)
    print("\n".join(problems) or "check_includes: every include points down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
