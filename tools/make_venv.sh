#!/usr/bin/env bash
# make_venv.sh PYTHON FOLDER: a virtual environment, also where Debian keeps venv in a package of its own.
set -euo pipefail
python=$1 folder=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "meshwright needs Python 3.11 or newer; $python is $("$python" --version 2>&1). Try: make PYTHON=python3.12" >&2
  exit 2
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    apt-get install -y -qq "python$version-venv" >/dev/null || apt-get install -y -qq python3-venv >/dev/null
  else
    echo "python3-venv is missing. Try: sudo apt-get install python$version-venv" >&2
    exit 2
  fi
fi
"$python" -m venv "$folder"
