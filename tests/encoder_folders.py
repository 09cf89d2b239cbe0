"""Folders of tiny encoders and their tokenizers, made by Transformers with random weights."""

import random
import unicodedata

import sentencepiece
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from jaxnlp.text.wordpiece import SPECIAL

WORDS = ["the", "cat", "sat", "##s", "on", "mat", "dog", "ate", "big", "fish", ".", ",", "in", "rome"]
TEXTS = [
    "The cat sat on the mat.",
    "A big dog ate a fish in Rome, and the cats sat on mats.",
    "Gatos y perros comen pescado en Roma; el gato grande está aquí.",
    "Der große Hund frisst den Fisch. Die Katze sitzt auf der Matte!",
    "猫坐在垫子上。狗吃了鱼。",
    "Кошка сидит на коврике, пока собака ест рыбу.",
]
"""The texts of the vocabularies."""


def save_tokenizer(model_type, folder):
    """Writes the tokenizer of a tiny model, as Transformers saves it, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    if model_type == "roberta":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        first = ["<s>", "<pad>", "</s>", "<unk>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=340, special_tokens=first, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(TEXTS, trainer)
        tokenizer.add_special_tokens(["<mask>"])
        tokenizer.model.save(str(folder))
        vocabulary = tokenizer.get_vocab()
        merges = [tuple(line.split(" ")) for line in (folder / "merges.txt").read_text().split("\n")[1:] if line]
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        made = transformers.RobertaTokenizer(vocab=vocabulary, merges=merges)
    elif model_type == "xlm-roberta":
        file = folder / "sentencepiece.bpe.model"
        with file.open("wb") as target:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(TEXTS * 4),
                model_writer=target,
                vocab_size=150,
                hard_vocab_limit=False,
                minloglevel=2,
            )
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
        made = transformers.XLMRobertaTokenizer.from_pretrained(folder)
        file.unlink()
    elif model_type == "modernbert":
        made = modernbert_tokenizer()
    else:
        pieces = "".join(f"{piece}\n" for piece in [*SPECIAL, *WORDS, *"abcdefghijklmnop"])
        (folder / "vocab.txt").write_text(pieces)
        kind = transformers.DistilBertTokenizer if model_type == "distilbert" else transformers.BertTokenizer
        made = kind.from_pretrained(folder)
        (folder / "vocab.txt").unlink()
    made.save_pretrained(folder)
    return made


def modernbert_tokenizer():
    """As that of ModernBERT-base: byte-level BPE of texts in NFC, with the special tokens after the others."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=336, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("   ", normalized=True)])
    named = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    tokenizer.add_special_tokens([AddedToken(name, lstrip=name == "[MASK]", special=True) for name in named])
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]",
        "[CLS] $A [SEP] $B:1 [SEP]:1",
        [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{name[1:-1].lower()}_token": name for name in named},
    )


SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 42,
}


def config_of(model_type, **changes):
    """The config of a tiny model; the changes have the names of its family."""
    sizes = dict(SIZES)
    if model_type == "distilbert":
        sizes = {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12, "max_position_embeddings": 40}
    if model_type == "electra":
        sizes |= {"embedding_size": 6}
    if model_type == "modernbert":
        sizes |= {"num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 8, "pad_token_id": 340}
    if "roberta" in model_type:
        sizes |= {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return transformers.AutoConfig.for_model(model_type, **sizes | changes)


PREFIXES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
}
"""First parts of the names of classes."""


def make_model(model_type, kind="Model", *, options=None, **changes):
    """A model of Transformers with parameters about ten times as large as initial ones, so that all parts count.

    Args:
      kind: its class without the prefix of the family, such as ForMaskedLM.
      options: arguments of the class, such as add_pooling_layer.
      changes: of its config.
    """
    torch.manual_seed(0)
    model = getattr(transformers, PREFIXES[model_type] + kind)(config_of(model_type, **changes), **options or {}).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "norm" not in name.lower():
                tensor.copy_(0.2 * torch.randn(tensor.shape))
            else:
                tensor.add_(0.2 * torch.randn(tensor.shape))
    return model


def write_folder(model_type, folder, kind="Model", **arguments):
    """A folder of a tiny model and its tokenizer; returns both. Arguments: those of `make_model`."""
    tokenizer = save_tokenizer(model_type, folder)
    model = make_model(model_type, kind, vocab_size=len(tokenizer), **arguments)
    model.save_pretrained(folder)
    return model, tokenizer


RANGES = [(code, code + 128) for code in range(0, 0x3000, 128)] + [
    (0x4E00, 0x4F00),
    (0xAC00, 0xAD00),
    (0xFB00, 0xFFFF),
    (0x1F300, 0x1F700),
    (0x1D400, 0x1D800),
    (0x20000, 0x20100),
]


def random_texts(count, seed=0):
    """Texts of random characters of every script, with blanks, controls and special tokens among them."""
    draw = random.Random(seed)
    extra = [" ", "  ", "\t", "\n", "\u3000", "\u200d", "<mask>", "</s>", "[MASK]", "\u2581", "a", "The", "1", "\u0301"]
    texts = []
    for _ in range(count):
        low, high = draw.choice(RANGES)
        characters = []
        for _ in range(draw.randrange(1, 16)):
            if draw.random() < 0.35:
                characters.append(draw.choice(extra))
            else:
                span = (low, high) if draw.random() < 0.8 else draw.choice(RANGES)
                character = chr(draw.randrange(*span))
                characters.append(character if unicodedata.category(character) != "Cs" else "x")
        texts.append("".join(characters))
    return texts
