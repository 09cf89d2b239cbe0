#!/usr/bin/env bash
# Checks the kernels, measures six cases and trains a GPT, in eight minutes, on a machine with a GPU, JAX for CUDA and
# PyTorch.
#
#     bash benchmarks/gpu.sh [OUT [WHEELS]]
#
# OUT gets a JSON file of rows for each case as soon as it is measured, and all that was printed. At the end
# benchmarks_gpu.json has all rows: copy it to docs/results, and `python -m benchmarks.markdown` writes its table into
# docs/benchmarks.md. WHEELS is a folder of
# wheels, for a machine without a package index. With JAXNLP_DATA, gpt_shakespeare is trained, too: the lines of the
# training have the seconds since its process started, so the first with a validation loss of 1.47 says how long that
# took. A second start, stopped after its first steps, has its programs from the cache.
#
# A step has its own time limit, and if it fails the others follow. The limits are 475 seconds together. After a long
# installation the last steps have less time, or none. What takes longer is a command of its own, of about six minutes:
#
#     python3 -m jaxnlp train multi30k_transformer --workdir multi30k_run
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-gpu_results} wheels=${2:-}
mkdir "$out" || exit  # an old one would be mixed with the new rows
out=$(cd "$out" && pwd)
exec > >(tee "$out/log.txt") 2>&1
if [ -n "$wheels" ]; then
    options=(--quiet --no-index --no-deps --no-compile --target /tmp/jaxnlp_wheels)
    timeout 120 python3 -m pip install "${options[@]}" "$wheels"/*.whl || exit
    export PYTHONPATH=/tmp/jaxnlp_wheels
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
limited() {  # SECONDS COMMAND...
    local seconds=$1 began=$SECONDS left=$((470 - SECONDS))
    shift
    echo "== $*"
    if ((left < 1)); then
        echo "not started: eight minutes are over"
    else
        timeout -k 5 "$((seconds < left ? seconds : left))" "$@" ||
            echo "ended with status $? after $((SECONDS - began)) s"
    fi
}
timed() {  # each line after the seconds since the first
    local began=$SECONDS line
    while IFS= read -r line; do echo "$((SECONDS - began)) s: $line"; done
}
train() {  # SECONDS FOLDER
    limited "$1" python3 -m jaxnlp train gpt_shakespeare --workdir "$out/$2" | timed
    grep -H seconds_to_first_step "$out/$2/environment.json"
}
limited 50 python3 -m benchmarks.gpu_checks
limited 120 python3 -m benchmarks gpt2_124m --device gpu --json "$out/gpt2_124m.json"
limited 50 python3 -m benchmarks awd_lstm --device gpu --json "$out/awd_lstm.json"
limited 45 python3 -m benchmarks gpt_shakespeare --device gpu --json "$out/gpt_shakespeare.json"
if [ -n "${JAXNLP_DATA:-}" ]; then
    export JAX_COMPILATION_CACHE_DIR="$out/cache"
    train 95 shakespeare_run
    cp "$out/shakespeare_run/metrics.jsonl" "$out/gpt_shakespeare_metrics.jsonl"
    train 15 shakespeare_run_again
    unset JAX_COMPILATION_CACHE_DIR
fi
for case in bert_finetune transformer_step; do
    limited 30 python3 -m benchmarks "$case" --device gpu --json "$out/$case.json"
done
limited 40 python3 -m benchmarks generate --device gpu --json "$out/generate.json"
shopt -s nullglob
python3 -c 'import json, sys; print(json.dumps([row for file in sys.argv[1:] for row in json.load(open(file))], indent=1))' \
    "$out"/*.json > "$out/all_rows" && mv "$out/all_rows" "$out/benchmarks_gpu.json"
echo "done after $SECONDS s"
