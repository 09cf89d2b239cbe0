import types

import jax
import pytest

from jaxnlp.ops.devices import cuda_capability


def test_a_cpu_is_no_gpu():
    assert cuda_capability() is None


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"compute_capability": "9.0"}, (9, 0)),
        ({"compute_capability": "12.1"}, (12, 1)),
        ({"compute_capability": "gfx90a"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_nvidia_gpus_say_what_they_can_do(monkeypatch, device, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [types.SimpleNamespace(**device)])
    assert cuda_capability() == expected
