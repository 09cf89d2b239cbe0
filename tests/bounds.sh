#!/usr/bin/env bash
# Runs the quick tests with the lowest version of each direct dependency, then with the newest one of each.
#
#   tests/bounds.sh [python3.11 [python3.13]]     the interpreters of both, the lowest and the newest
#
# Environments and a copy of the checkout are below build/bounds. It takes about 20 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
lowest=${1:-python3.11} newest=${2:-python3.13}
folder=$PWD/build/bounds
export JAXNLP_DATA=${JAXNLP_DATA:-$(dirname "$PWD")/shared/data}
rm -rf "$folder"
mkdir -p "$folder"
git archive --prefix=checkout/ HEAD | tar -x -C "$folder"
# Not for every Python, or not for the lowest versions; tests with them are left out below.
sed -i -E '/^  "(atheris|jaxnlp\[)/d' "$folder/checkout/pyproject.toml"

run_tests() {
    "$folder/$1/bin/pip" list --format freeze --disable-pip-version-check | grep -iE "^(jax|jaxlib|flax|numpy|optax)=="
    (cd "$folder/checkout" && "$folder/$1/bin/python" -m pytest \
        --numprocesses 2 --dist loadfile --no-loadscope-reorder --quiet -p no:cacheprovider -m "not thorough" \
        tests/data tests/jaxnlp tests/seam tests/train)
}

"$newest" -m venv "$folder/newest"
"$folder/newest/bin/pip" install --quiet --editable "$folder/checkout[dev]"
run_tests newest

"$lowest" -m venv "$folder/lowest"
"$folder/lowest/bin/pip" install --quiet uv
"$folder/lowest/bin/uv" pip install --quiet --python "$folder/lowest/bin/python" --resolution lowest-direct \
    --editable "$folder/checkout"
"$folder/lowest/bin/pip" freeze --exclude-editable > "$folder/lowest.txt"
"$folder/lowest/bin/pip" install --quiet --constraint "$folder/lowest.txt" --editable "$folder/checkout[dev]"
run_tests lowest
