#!/usr/bin/env bash
# Makes a fresh machine ready to build: apt packages, then .venv with what pyproject.toml asks for.
#
# Only what is missing is installed, so a machine that has everything needs no network, and a second run is a
# comparison of one stamp. Everything Python goes into .venv; apt is used as root only.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

say() { echo "setup: $*"; }
die() { say "$@" >&2; exit 1; }

# .venv is made from the python3 outside it, also when the user has activated it.
PATH=$(echo "$PATH" | tr : '\n' | grep -vxF "$root/.venv/bin" | paste -sd:)

# What .venv and build/ were made for, and what was installed. The first is a reason to start over, the second to
# look again.
place() { python3 -c 'import sys; print(sys.argv[1], sys.executable, sys.version)' "$root" 2>/dev/null; }
wanted() { cat pyproject.toml tools/setup.sh tools/requirements.py tools/demo-requirements.txt | sha256sum; }

place_stamp=.venv/place.stamp wanted_stamp=.venv/wanted.stamp
holds() { [[ -f $1 && $(cat "$1") == "$2" ]]; }

if holds $place_stamp "$(place)" && holds $wanted_stamp "$(wanted)"; then exit 0; fi

# --- apt ---------------------------------------------------------------------------------------------------------

has_command() { command -v "$1" >/dev/null; }
has_header() { echo "#include <$1>" | g++ -E -x c++ - >/dev/null 2>&1; }
has_python() { python3 -c "$1" 2>/dev/null; }

missing_packages() {
  has_command g++ || echo g++
  has_command cmake || echo cmake
  has_command ninja || echo ninja-build
  has_command python3 || echo python3
  has_header fmt/core.h || echo libfmt-dev
  has_header gtest/gtest.h || echo libgtest-dev
  has_python 'import ensurepip' || has_python 'import pip' || echo python3-venv
  has_python 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' || echo python3-dev
}

packages=$(missing_packages | paste -sd' ')
if [[ -n $packages ]]; then
  has_command apt-get || die "missing, by Debian's names: $packages. Install them and run make again."
  [[ $EUID == 0 ]] || die "missing packages. Run: sudo apt-get install $packages"
  say "apt-get install $packages"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # a list of names
  { apt-get update -qq && apt-get install -qq -y --no-install-recommends $packages; } >/dev/null ||
    die "apt-get could not install: $packages (is there a network?)"
fi

has_python 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "$(python3 -c 'import sys; print(sys.executable, sys.version.split()[0])') is too old; 3.11 or newer is needed"

# --- .venv -------------------------------------------------------------------------------------------------------

if ! holds $place_stamp "$(place)"; then
  say "creating .venv from $(python3 -c 'import sys; print(sys.executable)')"
  rm -rf .venv build
  # Without ensurepip, the pip of the interpreter that makes .venv serves.
  python3 -m venv .venv >/dev/null 2>&1 || python3 -m venv --without-pip .venv
  place >$place_stamp
fi

site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# The packages of the interpreter that made .venv stay visible (torch, on a GPU machine). --system-site-packages
# would not do: from inside a venv it shows the base interpreter's packages and not that venv's.
python3 - >"$site_packages/parent.pth" <<'PYTHON'
import site
for directory in site.getsitepackages():
    print(f"import site; site.addsitedir({directory!r})")
PYTHON

# The checkout's own package, and its command.
echo "$root/python" >"$site_packages/cleave.pth"
# Not a Python script: the first line of one cannot name a path with a space in it.
cat >.venv/bin/cleave <<SCRIPT
#!/bin/sh
exec "$root/.venv/bin/python" -P -m cleave "\$@"
SCRIPT
chmod +x .venv/bin/cleave

# --- Python packages -----------------------------------------------------------------------------------------------

# pip goes to the network only for what is missing, and then does not wait long for a network that is not there.
pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 "$@"
}

cmake_is_recent() {
  printf '%s\n' 3.25 "$(cmake --version | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)" | sort -VC
}

mapfile -t required < <(.venv/bin/python tools/requirements.py build run nvrtc test bench)
cmake_is_recent || required+=("cmake>=3.25")
say "pip install ${required[*]}"
# Wheels alone: building a package would run its code, here often as root.
pip_install --only-binary=:all: "${required[@]}" ||
  die "the package that pip names above is missing from $(python3 -c 'import sys; print(sys.prefix)')" \
      "and could not be installed (is there a network?)"

# The demo's data, each for a section of its own: of these files, whatever the index has.
while read -r package hash; do
  pip_install --no-deps --use-pep517 --require-hashes -r <(echo "$package $hash") 2>/dev/null ||
    say "without a network there is no $package: \`make run\` will do without, and say so"
done < <(grep -v '^#' tools/demo-requirements.txt)

wanted >$wanted_stamp
