import ast
import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from docs.masks_plot import MASKS, T
from docs.masks_plot import draw as draw_masks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "attention.md"
SCRIPT = ROOT / "docs" / "attention_experiments.py"


def fenced(page):
    """(info, body) of each fenced block of a Markdown page."""
    return re.findall(r"^```(.*)\n((?:.*\n)*?)^```$", page, flags=re.MULTILINE)


def stripped(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def occurs(quote, source):
    """Whether the lines of a quotation follow each other in a source, whatever their indentation."""
    wanted, lines = stripped(quote), stripped(source)
    return bool(wanted) and any(lines[i : i + len(wanted)] == wanted for i in range(len(lines)))


BLOCKS = fenced(PAGE.read_text(encoding="utf-8"))
QUOTES = [(info.split()[1], body) for info, body in BLOCKS if len(info.split()) == 2]


@pytest.mark.parametrize(("path", "quote"), QUOTES)
def test_quoted_code_occurs_in_its_file(path, quote):
    assert occurs(quote, (ROOT / path).read_text(encoding="utf-8"))


def test_a_quotation_that_no_longer_fits_would_be_found():
    source = "def f(x):\n    y = x + 1\n\n    return y\n"
    assert occurs("y = x + 1\nreturn y\n", source)
    assert not occurs("y = x + 2\n", source)
    assert not occurs("return y\ny = x + 1\n", source)
    assert not occurs("\n", source)


def test_every_step_of_both_passes_is_quoted():
    path = "jaxnlp/ops/single_head.py"
    source = (ROOT / path).read_text(encoding="utf-8")
    quoted = {line for quoted_path, quote in QUOTES if quoted_path == path for line in stripped(quote)}
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    for name, number_of_steps in (("_steps", 6), ("_gradients", 10)):
        assigned = [
            node
            for node in functions[name].body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ]
        assert len(assigned) == number_of_steps
        assert {line for node in assigned for line in stripped(ast.get_source_segment(source, node))} <= quoted


def test_every_block_is_a_formula_a_quotation_an_example_or_numbers():
    for info, body in BLOCKS:
        name, *path = info.split() or [""]
        assert name in ("math", "python", "text", "")
        assert name != "python" or path or body.startswith(">>> ")
    assert [body for info, body in BLOCKS if not info] == ["python docs/attention_experiments.py --out FOLDER\n"]


def test_links_lead_somewhere():
    page = PAGE.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in re.findall("^#+ (.*)", page, re.M)
    }
    targets = re.findall(r"\]\((?!https://)([^)]*)\)", page)
    assert len(targets) > 10
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in headings
        else:
            assert (PAGE.parent / target).is_file()


@pytest.fixture(scope="module")
def example():
    """The names that the worked example defines, after all its lines printed what the page says."""
    source = "\n".join(body for info, body in BLOCKS if info == "python")
    test = doctest.DocTestParser().get_doctest(source, {}, "attention.md", str(PAGE), 0)
    assert len(test.examples) > 25
    runner = doctest.DocTestRunner()
    report = []
    runner.run(test, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)
    return test.globs


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def finite_differences(function, x, step=1e-6):
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = step
        gradient[index] = (function(x + moved) - function(x - moved)) / (2 * step)
    return gradient


def test_worked_example_agrees_with_finite_differences_of_plain_numpy(example):
    """Each array's gradient is that of the loss sum(dY * Y) when only this array is moved."""
    from jaxnlp.ops.single_head import self_attention_gradients

    inputs = [example[name] for name in ("x", "w_q", "w_k", "w_v", "dy")]
    steps, gradients = self_attention_gradients(*inputs, causal=True)
    x, w_q, w_k, w_v, dy = (np.asarray(m, np.float64).reshape(2, 2) for m in inputs)
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    hidden = np.array([[0.0, -np.inf], [0.0, 0.0]])
    z = q @ k.T / np.sqrt(2)
    a = softmax(z + hidden)

    def from_weights(a, v=v):
        return (dy * (a @ v)).sum()

    def from_scores(z, v=v):
        return from_weights(softmax(z + hidden), v)

    def from_heads(q=q, k=k, v=v):
        return from_scores(q @ k.T / np.sqrt(2), v)

    def from_inputs(x=x, w_q=w_q, w_k=w_k, w_v=w_v):
        return from_heads(x @ w_q, x @ w_k, x @ w_v)

    expected = {
        "dv": finite_differences(lambda m: from_heads(v=m), v),
        "dweights": finite_differences(from_weights, a),
        "dscores": finite_differences(from_scores, z),
        "dq": finite_differences(lambda m: from_heads(q=m), q),
        "dk": finite_differences(lambda m: from_heads(k=m), k),
        "dx": finite_differences(lambda m: from_inputs(x=m), x),
        "dw_q": finite_differences(lambda m: from_inputs(w_q=m), w_q),
        "dw_k": finite_differences(lambda m: from_inputs(w_k=m), w_k),
        "dw_v": finite_differences(lambda m: from_inputs(w_v=m), w_v),
    }
    assert expected.keys() == gradients._asdict().keys()
    for name, gradient in gradients._asdict().items():
        np.testing.assert_allclose(np.asarray(gradient).reshape(2, 2), expected[name], atol=2e-6, err_msg=name)
    np.testing.assert_allclose(steps.weights[0], a, atol=1e-6)
    np.testing.assert_allclose(steps.y[0], a @ v, atol=1e-5)


def test_row_sum_from_small_arrays_is_that_from_large_ones_under_dropout_too():
    rng = np.random.default_rng(0)
    a, v, dy = softmax(rng.normal(size=(5, 7))), rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    for m in (np.ones((5, 7)), (rng.random((5, 7)) > 0.3) / 0.7):
        y, da = (a * m) @ v, m * (dy @ v.T)
        np.testing.assert_allclose((a * da).sum(axis=-1), (y * dy).sum(axis=-1), atol=1e-12)


@pytest.fixture(scope="module")
def experiments():
    spec = importlib.util.spec_from_file_location("attention_experiments", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_copy_error_falls_as_the_formula_says_with_a_longer_query(experiments):
    result = experiments.copying(np.random.default_rng(1), (0.0, 5.0, 10.0), (2, 64))
    for count, errors in result.errors.items():
        w = np.exp(result.factors) / (np.exp(result.factors) + count - 1)
        # Weight 1 - w is missing at v_a and spread evenly over the other unit vectors.
        expected = np.hypot(1 - w, (1 - w) / np.sqrt(count - 1))
        np.testing.assert_allclose(errors, expected, rtol=0.01)
        np.testing.assert_allclose(experiments.copying_error(result.factors, count), expected, rtol=1e-9)
        assert errors[0] > 0.7
        assert errors[-1] < 0.003


def test_average_is_half_of_each(experiments):
    result = experiments.averaging(np.random.default_rng(1), (0.0, 14.0))
    np.testing.assert_allclose([result.weight_a, result.weight_b], [[1 / 16, 0.5]] * 2, atol=1e-4)
    np.testing.assert_allclose(result.others, [14 / 16, 0.0], atol=1e-4)
    assert result.errors[-1] < 1e-4


@pytest.fixture(scope="module")
def places(experiments):
    """Outputs at factor 20 by (heads, whether key a's length varies), from draws that the page does not show."""
    rng = np.random.default_rng(1)
    means = experiments.orthonormal(rng, experiments.KEYS, experiments.KEYS)
    drawn = {varying: experiments.draw_keys(rng, means, varying=varying) for varying in (False, True)}
    return {
        (heads, varying): experiments.attend_to_both(keys, means, queries(means, 20.0))
        for varying, keys in drawn.items()
        for heads, queries in ((1, experiments.one_head), (2, experiments.two_heads))
    }


@pytest.mark.sweep(1)
@pytest.mark.parametrize("heads", [1, 2])
def test_keys_of_one_length_are_averaged_by_one_head_and_by_two(places, heads):
    np.testing.assert_allclose(places[heads, False].places, 0.5, atol=0.06)


def test_keys_vary_along_their_mean_with_variance_one_half_and_barely_elsewhere(experiments):
    means = np.eye(experiments.KEYS)
    keys = experiments.draw_keys(np.random.default_rng(2), means, varying=True)
    np.testing.assert_allclose(keys.mean(axis=0), means, atol=0.1)
    variances = keys.var(axis=0)
    np.testing.assert_allclose(variances[experiments.A, experiments.A], 0.5, atol=0.08)
    variances[experiments.A, experiments.A] = experiments.ALPHA
    np.testing.assert_allclose(variances, experiments.ALPHA, rtol=0.3)


def test_one_head_takes_one_value_or_the_other_when_a_key_varies(experiments, places):
    samples = places[1, True]
    assert samples.places.std() > 0.4
    assert abs(samples.places.mean() - 0.5) < 0.05
    assert experiments.one_sided(samples.places) > 0.8
    assert (samples.places[samples.lengths > 1.2] > 0.9).all()
    assert (samples.places[samples.lengths < 0.8] < 0.1).all()


def test_two_heads_average_almost_always_when_a_key_varies(experiments, places):
    samples = places[2, True]
    assert samples.places.std() < 0.1
    assert samples.places.std() < places[1, True].places.std() / 5
    assert abs(samples.places.mean() - 0.5) < 0.05
    assert experiments.one_sided(samples.places) == 0.0
    np.testing.assert_allclose(samples.places[samples.lengths > 0.5], 0.5, atol=0.01)
    np.testing.assert_allclose(samples.places[samples.lengths < 0.0], 0.25, atol=0.03)


def test_place_is_0_at_one_value_and_1_at_the_other(experiments):
    values = np.eye(4)
    y = np.stack([values[experiments.B], values[experiments.A], values[2], values.mean(axis=0)])
    np.testing.assert_allclose(experiments.place(y, values), [0.0, 1.0, 0.5, 0.5])


def numbers(text):
    """The rows of numbers in a printed table."""
    rows = (line.split() for line in text.strip().splitlines()[2:])
    return np.array([[float(cell) for cell in row] for row in rows])


@pytest.mark.thorough
def test_script_draws_its_figure_and_prints_the_numbers_of_the_page(tmp_path):
    folder = tmp_path / "new" / "folder"
    command = [sys.executable, "docs/attention_experiments.py", "--out", str(folder)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    *printed, last = finished.stdout.strip().split("\n\n")
    figure = folder / "attention_experiments.png"
    assert Path(last) == figure
    content = figure.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20))
    assert (width, height) == (1500, 1080)
    shown = [body for info, body in BLOCKS if info == "text"]
    assert len(shown) == len(printed) == 4
    for page, script in zip(shown, printed, strict=True):
        assert page.splitlines()[:2] == script.splitlines()[:2]
        # A unit of the last digit shown, for another machine's exponentials.
        tolerance = {"rtol": 0.06} if page.startswith("(a)") else {"rtol": 0.02, "atol": 2e-4}
        np.testing.assert_allclose(numbers(script), numbers(page), **tolerance)


@pytest.mark.thorough
def test_the_picture_of_masks_is_drawn(tmp_path):
    assert draw_masks(tmp_path).read_bytes().startswith(b"\x89PNG")
    sees = {name: int(np.broadcast_to(mask, (1, 1, T, T)).sum()) for name, mask in MASKS.items()}
    assert [*sees.values()] == [48, 36, 33, 22, 21, 16]
