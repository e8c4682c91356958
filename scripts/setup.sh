#!/usr/bin/env bash
# Installs what building, testing and the quickstart need, from Debian or Ubuntu packages; does nothing where all is
# there. Extra packages may be named: scripts/setup.sh clang-format
set -euo pipefail

# Tools count as present wherever they come from; libraries are asked of the package database.
tools=(cmake:cmake ninja:ninja-build g++:g++ git:git pkg-config:pkg-config mpirun:openmpi-bin python3:python3 bible:bible-kjv)
libraries=(libopenblas-openmp-dev libopenmpi-dev libtoml11-dev libcli11-dev libhdf5-dev libspdlog-dev libfmt-dev
           nlohmann-json3-dev libpcre2-dev libxxhash-dev libgtest-dev libgmock-dev python3-h5py)
oldest_cmake=3.22

fail() { printf 'scripts/setup.sh: %s\n' "$@" >&2; exit 1; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  fail "this is not Debian or Ubuntu (no apt-get), so nothing was installed." \
       "  Install what these packages hold: ${tools[*]#*:} ${libraries[*]} $*" \
       "  Then build with: cmake --preset release && cmake --build --preset release"
fi

missing=()
for tool in "${tools[@]}"; do
  command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
done
for package in "${libraries[@]}" "$@"; do
  is_installed "$package" || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
  as_root=(env)
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "these packages are missing, and installing needs root or sudo: ${missing[*]}" \
           "  As root, run: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    as_root=(sudo env)
  fi
  apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q)
  echo "setup: installing ${missing[*]}"
  "${apt[@]}" update </dev/null || fail "apt-get update failed (above); the package lists may be out of reach."
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null ||
    fail "apt-get could not install: ${missing[*]}" \
         "  On Ubuntu they need the 'universe' component: add-apt-repository universe"
else
  echo "setup: nothing to install"
fi

cmake_version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
if [ "$(printf '%s\n' "$oldest_cmake" "$cmake_version" | sort -V | head -n 1)" != "$oldest_cmake" ]; then
  fail "CMake $cmake_version is too old; $oldest_cmake or newer is needed (python3 -m pip install cmake)."
fi
