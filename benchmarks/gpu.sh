#!/usr/bin/env bash
# Measures everything that needs a GPU, in eight minutes, on a machine with a GPU, JAX for CUDA and PyTorch.
#
#     bash benchmarks/gpu.sh [OUT [WHEELS]]
#
# OUT gets a JSON file of rows for each case as soon as it is measured, and all that was printed. WHEELS is a folder of
# wheels, for a machine without a package index. With JAXNLP_DATA, gpt_shakespeare is trained, too.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-gpu_results} wheels=${2:-}
mkdir "$out" || exit  # an old one would be mixed with the new rows
exec > >(tee "$out/log.txt") 2>&1
if [ -n "$wheels" ]; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target /tmp/jaxnlp_wheels "$wheels"/*.whl || exit
    export PYTHONPATH=/tmp/jaxnlp_wheels
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" XLA_PYTHON_CLIENT_PREALLOCATE=false
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
limited() {  # SECONDS COMMAND...
    local seconds=$1 began=$SECONDS
    shift
    echo "== $*"
    timeout -k 10 "$seconds" "$@" || echo "ended with status $? after $((SECONDS - began)) s"
}
limited 130 python3 -m benchmarks gpt2_124m --device gpu --json "$out/gpt2_124m.json"
limited 60 python3 -m benchmarks awd_lstm --device gpu --json "$out/awd_lstm.json"
limited 55 python3 -m benchmarks gpt_shakespeare --device gpu --json "$out/gpt_shakespeare.json"
if [ -n "${JAXNLP_DATA:-}" ]; then
    limited 95 python3 -m jaxnlp train gpt_shakespeare --workdir "$out/shakespeare_run"
    cp "$out/shakespeare_run/metrics.jsonl" "$out/gpt_shakespeare_metrics.jsonl"
fi
for case in bert_finetune transformer_step; do
    limited 40 python3 -m benchmarks "$case" --device gpu --json "$out/$case.json"
done
limited 55 python3 -m benchmarks generate --device gpu --json "$out/generate.json"
echo "done after $SECONDS s"
