"""The attention weights of the encoder of texts are those of Transformers."""

import numpy as np
import pytest
import torch
import transformers

from tests.clip_folders import END, START, tokenizer

TEXT = "A big dog ate a fish."


def test_weights_on_a_text_are_those_of_transformers(tiny):
    folder, _, run = tiny
    model = transformers.CLIPModel.from_pretrained(folder, attn_implementation="eager").eval().text_model
    with torch.no_grad():
        expected = model(**tokenizer()([TEXT], return_tensors="pt"), output_attentions=True).attentions
    found = run.attend(TEXT)
    (maps,) = found.maps
    np.testing.assert_allclose(maps.weights, torch.cat(expected).numpy(), atol=1e-5)
    assert (found.title, found.truncated, maps.rows[0], maps.rows[-1]) == (TEXT, False, START, END)
    np.testing.assert_array_equal(maps.visible, np.tri(len(maps.rows), dtype=bool))
    assert run.attend(TEXT, max_length=4).truncated


@pytest.mark.parametrize(("text", "message"), [(" ", "blank"), (3, "expected a text, got int")])
def test_what_is_no_text_is_refused(text, message, texts_only):
    with pytest.raises(ValueError, match=message):
        texts_only[2].attend(text)
