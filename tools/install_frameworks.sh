#!/usr/bin/env bash
# install_frameworks.sh VENV TORCH TRANSFORMERS: the training frameworks whose own parsers judge what is read and written.
# Versions are those that `frameworks/*/fields.py` name; nothing here needs a GPU or compiles anything.
set -euo pipefail
venv=$1 torch=$2 transformers=$3
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install "$torch" "$transformers" accelerate==1.15.0
DS_BUILD_OPS=0 "${pip[@]}" install deepspeed==0.19.8
"${pip[@]}" install megatron-core==0.16.1
# Only the reader of its configuration is used: its other dependencies (data sets, kernels) are left out.
"${pip[@]}" install --no-deps torchtitan==0.2.2
"${pip[@]}" install 'tyro>=0.9'
"${pip[@]}" install -e . 'pytest>=8' 'hypothesis>=6.100'
