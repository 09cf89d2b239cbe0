"""How the calls of the kernels for TPUs divide heads; their values are in test_flash.py."""

import pytest

from jaxnlp.ops.flash_tpu import head_width


@pytest.mark.parametrize(
    ("width", "heads", "key_heads", "expected"),
    [
        (64, 12, 12, 64),
        (64, 3, 3, 128),
        (48, 2, 2, 64),
        (20, 4, 4, 32),
        (4, 8, 8, 16),
        (64, 12, 4, 128),
        (128, 4, 2, 128),
    ],
)
def test_heads_fill_blocks_of_columns_or_are_padded_to_one(width, heads, key_heads, expected):
    assert head_width(width, heads, key_heads) == expected
