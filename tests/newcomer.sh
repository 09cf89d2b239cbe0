#!/usr/bin/env bash
# What a newcomer does: installs the wheel in a new environment, and runs the README's Python and short commands in an
# empty folder. Two steps of training are enough here. Dependencies come from the environment of the Python given:
#   tests/newcomer.sh [PYTHON]    default: .venv/bin/python
set -euo pipefail
checkout="$(cd "$(dirname "$0")/.." && pwd)"
base="${1:-$checkout/.venv/bin/python}"
place="$(mktemp -d)"
# kill fails where no command runs in the background any more: after success.
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$place"' EXIT
export JAX_PLATFORMS=cpu PIP_DISABLE_PIP_VERSION_CHECK=1 JAXNLP_CACHE="$place/cache" HF_HUB_OFFLINE=1
unset JAXNLP_DATA PYTHONPATH

echo "== the wheel, built from a copy of the checkout"
mkdir "$place/checkout" "$place/mine"
git -C "$checkout" ls-files -z | tar --directory "$checkout" --null --files-from - --create | tar --directory "$place/checkout" --extract
cd "$place"
"$base" -m pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir "$place" "$place/checkout"
cp checkout/README.md README.md
rm -r checkout

echo "== a new environment with the wheel"
"$base" -m venv --without-pip "$place/venv"
python="$place/venv/bin/python"
"$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
    "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
"$base" -m pip --python "$python" install --quiet --no-deps --no-index "$place"/*.whl
PATH="$place/venv/bin:$PATH"
cd "$place/mine"
jaxnlp --version
python -c 'import jaxnlp; assert "venv" in jaxnlp.__file__; print(jaxnlp.ops.dot_product_attention, jaxnlp.models.GPTConfig)'
for name in train data configs; do
    if python -c "import $name" 2> /dev/null; then
        echo "error: the wheel claims the name $name" >&2
        exit 1
    fi
done

echo "== the README's Python and commands, in a folder with a train.py, a data.py and a configs of its own"
mkdir configs
echo "raise SystemExit('not ours')" | tee train.py data.py > configs/__init__.py
python - > "$place/python.txt" 2>&1 <<'PYTHON' &
import pathlib, re

page = pathlib.Path("../README.md").read_text()
for block in re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE):
    exec(block.replace("total_steps=100", "total_steps=2"), {})
PYTHON
readme=$!
few=(--total-steps 2 --evaluate-every-steps 2 --checkpoint-every-steps 2 --optimizer.schedule.warmup 0)
for number in $(seq 200); do echo "Once upon a time, line $number."; done > my.txt
jaxnlp train --list > list.txt
grep -q small_grammar_tagger list.txt
jaxnlp train small_grammar_tagger --workdir runs/small_grammar_tagger "${few[@]}" > /dev/null &
tagger=$!
cat > mine.py <<'PYTHON'
"""A recipe of one's own."""

from configs import gpt_text_file
from train.config import update


def get_config():
    return update(gpt_text_file.get_config(), **{"data.path": "my.txt", "model.num_layers": 2})
PYTHON
jaxnlp train ./mine.py --workdir runs/my_text "${few[@]}" > /dev/null
jaxnlp evaluate runs/my_text --file my.txt > /dev/null
jaxnlp report runs/my_text > /dev/null
wait "$tagger"
jaxnlp compare runs/my_text runs/small_grammar_tagger > /dev/null
if ! wait "$readme"; then
    cat "$place/python.txt" >&2
    exit 1
fi
cat "$place/python.txt"

echo "== trained runs, moved to another folder"
mv runs "$place/runs"
cd "$place"
jaxnlp generate runs/my_text --prompt "Once" --max-new-tokens 30 --temperature 0.8
jaxnlp predict runs/small_grammar_tagger "Jordan visits New York with Anna Kim."
echo "== done in $SECONDS s"
