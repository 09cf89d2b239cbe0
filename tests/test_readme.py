"""The README's code runs."""

import re
from pathlib import Path

import numpy as np


def test_the_functions_of_the_readme_run_as_they_are_written(root: Path, capsys):
    page = (root / "README.md").read_text(encoding="utf-8")
    section = page.split("## The functions alone", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    found: dict = {}
    exec(code, found)
    assert capsys.readouterr().out == "(2, 10, 10) (16, 8)\n"
    assert found["y"].shape == (2, 10, 4, 8)
    assert float(found["count"]) == 20.0
    assert np.isfinite(found["loss"])
