import pytest

from jaxnlp.convert.encoder_decoder_weights import to_huggingface
from jaxnlp.convert.encoder_decoders.t5 import FAMILY
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder
from tests.encoder_decoder_folders import write_folder


@pytest.mark.parametrize("feed_forward", ["relu", "gated-gelu"])
def test_the_tensors_are_those_of_the_class_in_transformers(feed_forward, tmp_path):
    model, _ = write_folder(tmp_path, feed_forward_proj=feed_forward, num_decoder_layers=1)
    held = read_encoder_decoder(tmp_path)
    found = to_huggingface(held.params, held.config, FAMILY)
    assert {name: array.shape for name, array in found.items()} == {
        name: tuple(tensor.shape) for name, tensor in model.named_parameters()
    }
    assert ("decoder.block.0.layer.2.DenseReluDense.wi_1.weight" in found) == (feed_forward == "gated-gelu")
