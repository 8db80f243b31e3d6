#!/usr/bin/env bash
# install_size.sh PYTHON [LIMIT_MB]: installed size of the core (no extras) in a fresh environment; fails above the limit.
set -euo pipefail
python=$1 limit=${2:-120}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bash "$(dirname "$0")/make_venv.sh" "$python" "$folder/venv"
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
before=$(du -sm "$site" | cut -f1)
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile .
after=$(du -sm "$site" | cut -f1)
echo "core install: $((after - before)) MB (limit $limit MB)"
[ $((after - before)) -lt "$limit" ]
