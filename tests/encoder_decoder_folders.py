"""Folders of tiny T5 and mT5 and their tokenizers, made by Transformers with random weights."""

import sentencepiece
import torch
import transformers

from tests.encoder_folders import TEXTS

SIZES = {"d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 2}
NEAR = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}


def save_tokenizer(folder, **settings):
    """Writes the tokenizer of a tiny T5, as Transformers saves it, and returns it. Args: settings: of its class."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "spiece.model"
    with file.open("wb") as target:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(TEXTS * 4),
            model_writer=target,
            vocab_size=150,
            hard_vocab_limit=False,
            minloglevel=2,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
        )
    made = transformers.T5Tokenizer.from_pretrained(folder, **{"extra_ids": 4} | settings)
    file.unlink()
    made.save_pretrained(folder)
    return made


def make_model(kind="T5", **changes):
    """A T5 of Transformers with parameters so large that all parts count.

    Args:
      kind: T5 or MT5.
      changes: of its config.
    """
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | NEAR | {"decoder_start_token_id": 0} | changes)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = (0.5 if name == "shared.weight" else 0.2) * torch.randn(tensor.shape)
            tensor.copy_(tensor + noise if "layer_norm" in name else noise)
    return model


def untie(model):
    """Gives a model an output layer of its own, as T5 1.1 and mT5 have it; returns it."""
    torch.manual_seed(1)
    model.lm_head.weight = torch.nn.Parameter(0.25 * torch.randn(model.lm_head.weight.shape))
    return model


def save_untied(model, folder):
    """Writes a model with an output layer of its own, as released files have it."""
    tied = model._tied_weights_keys
    model._tied_weights_keys = {name: kept for name, kept in tied.items() if name != "lm_head.weight"}
    model.all_tied_weights_keys = dict(model._tied_weights_keys)
    model.save_pretrained(folder)


def write_folder(folder, kind="T5", *, untied=False, **changes):
    """A folder of a tiny model and its tokenizer; returns both. Arguments: those of `make_model`."""
    tokenizer = save_tokenizer(folder)
    model = make_model(kind, **{"vocab_size": len(tokenizer) + 5} | changes)
    if untied:
        save_untied(untie(model), folder)
    else:
        model.save_pretrained(folder)
    return model, tokenizer
