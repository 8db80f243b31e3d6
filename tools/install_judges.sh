#!/usr/bin/env bash
# install_judges.sh VENV TORCH TRANSFORMERS: the real frameworks the suite is judged by, and meshwright itself.
set -euo pipefail
venv=$1 torch=$2 transformers=$3
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
if ! "$venv/bin/python" -c "import torch, transformers" 2>/dev/null; then
  "${pip[@]}" install "$torch" "$transformers"
fi
"${pip[@]}" install -e . 'pytest>=8' 'hypothesis>=6.100'
