"""Folders of a tiny BART and its tokenizer, made by Transformers with random weights."""

import torch
import transformers

from tests import encoder_folders

SIZES = {
    **{"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 130},
}


def save_tokenizer(folder):
    """Writes the tokenizer of a tiny BART, as Transformers saves it, and returns it."""
    return encoder_folders.save_tokenizer("roberta", folder)


def make_model(**changes):
    """A BART of Transformers with parameters so large that all parts count. Args: changes: of its config."""
    torch.manual_seed(0)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**SIZES | changes)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = (0.5 if name == "model.shared.weight" else 0.2) * torch.randn(tensor.shape)
            tensor.copy_(tensor + noise if "norm" in name else noise)
    return model


def write_folder(folder, **changes):
    """A folder of a tiny model and its tokenizer; returns both. Arguments: those of `make_model`."""
    tokenizer = save_tokenizer(folder)
    model = make_model(**{"vocab_size": len(tokenizer) + 5} | changes)
    model.save_pretrained(folder)
    return model, tokenizer
