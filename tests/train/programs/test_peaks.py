import pytest

from train.programs.peaks import PEAKS, peaks_of


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA L40S", "L40S"),
        ("TPU v5 lite", "TPU v5 lite"),
        ("TPU v5p", "TPU v5p"),
    ],
)
def test_devices_are_known_by_their_names(kind, name):
    assert peaks_of(kind) == PEAKS[name]


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA L400", "NVIDIA GB200", "NVIDIA GH200 480GB"])
def test_the_peaks_of_other_devices_are_not_known(kind):
    assert peaks_of(kind) is None
