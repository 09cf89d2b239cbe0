"""Folders of tiny decoders and their tokenizers, made by Transformers with random weights."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.encoder_folders import TEXTS

END = "<|endoftext|>"


def save_tokenizer(folder, **settings):
    """Writes the tokenizer of a tiny GPT-2, as Transformers saves it, and returns it. Args: settings: of its class."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([END])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(folder))
    merges = [tuple(line.split(" ")) for line in (folder / "merges.txt").read_text().split("\n")[1:] if line]
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    made = transformers.GPT2Tokenizer(vocab=tokenizer.get_vocab(), merges=merges, **settings)
    made.save_pretrained(folder)
    return made


SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}


def config_of(**changes):
    """The config of a tiny GPT-2."""
    return transformers.GPT2Config(**SIZES | {"bos_token_id": None, "eos_token_id": None} | changes)


def make_model(kind="LMHeadModel", **changes):
    """A GPT-2 of Transformers with parameters about ten times as large as initial ones, so that all parts count.

    Args:
      kind: its class, without GPT2.
      changes: of its config.
    """
    torch.manual_seed(0)
    model = getattr(transformers, f"GPT2{kind}")(config_of(**changes)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = 0.2 * torch.randn(tensor.shape)
            tensor.copy_(tensor + noise if "ln_" in name else noise)
    return model


def write_folder(folder, kind="LMHeadModel", **changes):
    """A folder of a tiny GPT-2 and its tokenizer; returns both. Arguments: those of `make_model`."""
    tokenizer = save_tokenizer(folder)
    end = tokenizer.eos_token_id
    ends = {"vocab_size": len(tokenizer), "bos_token_id": end, "eos_token_id": end}
    model = make_model(kind, **ends | changes)
    model.save_pretrained(folder)
    return model, tokenizer
