"""Folders of tiny encoders of images, as Transformers writes them."""

import json

import numpy as np
import torch
import transformers
from PIL import Image

CLASSES = ("cat", "dog", "fish")
SHAPE = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 20, "image_size": 12}
SHAPE |= {"patch_size": 4, "id2label": dict(enumerate(CLASSES)), "label2id": {n: i for i, n in enumerate(CLASSES)}}
PROCESSORS = {
    "ViT": transformers.ViTImageProcessorPil(size={"height": 12, "width": 12}, image_mean=[0.4, 0.5, 0.6]),
    "DeiT": transformers.DeiTImageProcessorPil(
        size={"height": 15, "width": 15}, crop_size={"height": 12, "width": 12}, image_std=[0.2, 0.25, 0.3]
    ),
    "CLIP": transformers.CLIPImageProcessorPil(size={"shortest_edge": 14}, crop_size={"height": 12, "width": 12}),
}


def make_model(kind="ViTForImageClassification", *, pooler=True, **changes):
    """A model of Transformers with random parameters that all count."""
    family = "DeiT" if kind.startswith("DeiT") else "ViT"
    config = getattr(transformers, f"{family}Config")(**SHAPE | changes)
    options = {"add_pooling_layer": pooler} if kind.endswith("Model") else {}
    model = getattr(transformers, kind)(config, **options)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
        for name, parameter in model.named_parameters():
            if "layernorm" in name and name.endswith("weight"):
                parameter += 1.0
    return model.eval()


def write_folder(folder, kind="ViTForImageClassification", **changes):
    """Writes a model and its image processor. Returns: both."""
    model = make_model(kind, **changes)
    model.save_pretrained(folder)
    processor = PROCESSORS["DeiT" if kind.startswith("DeiT") else "ViT"]
    processor.save_pretrained(folder)
    return model, processor


def change(folder, name, **changes):
    """Changes settings of a JSON file; None removes one."""
    settings = json.loads((folder / name).read_text()) | changes
    kept = {key: value for key, value in settings.items() if value is not None}
    (folder / name).write_text(json.dumps(kept))


def write_images(folder):
    """Images of all kinds, by name: odd sizes, grey, transparent, palettes, rotated by the camera."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)

    def pixels(*shape):
        return generator.integers(0, 256, shape, dtype=np.uint8)

    colours = Image.fromarray(pixels(31, 17, 3))
    images = {
        "square": Image.fromarray(pixels(12, 12, 3)),
        "odd": colours,
        "wide": Image.fromarray(pixels(9, 40, 3)),
        "small": Image.fromarray(pixels(5, 7, 3)),
        "grey": Image.fromarray(pixels(23, 19)),
        "grey_and_alpha": Image.fromarray(pixels(14, 21, 2)),
        "alpha": Image.fromarray(pixels(20, 30, 4)),
        "palette": colours.quantize(16),
        "bits": colours.convert("1"),
        "deep": Image.fromarray(pixels(16, 13).astype(np.uint16) * 257),
    }
    for name, image in images.items():
        image.save(folder / f"{name}.png")
    colours.quantize(8).save(folder / "transparent_palette.png", transparency=3)
    exif = Image.Exif()
    exif[0x0112] = 6
    colours.save(folder / "turned.jpg", exif=exif)
    colours.convert("CMYK").save(folder / "cmyk.jpg")
    return sorted(folder.iterdir())


def for_transformers(file):
    """A file that Transformers reads as we read this one: one of 8 bits if it has 16, which Pillow would cut off."""
    if "deep" not in file.name:
        return str(file)
    shallow = file.parent.with_name(f"{file.parent.name}_of_8_bits.png")
    Image.fromarray((np.asarray(Image.open(file)) // 257).astype(np.uint8)).save(shallow)
    return str(shallow)
