"""The encoders in front of language models, with the sizes of published ones."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec


class Tower(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tells one kind of encoder from another; sizes are those of the published models.

    The sizes stand in when an excerpt of a config leaves the encoder's section out.
    """

    published: str
    """Models whose config.json the sizes are read from."""
    section: str = "vision_config"
    layers: int
    hidden: int
    intermediate: int
    heads: int
    patch: int = 14
    gated: bool = False
    sharded: bool = True
    projector: str = "mlp"
    temporal: int = 1
    image_size: int = 0
    position_rows: int = 0
    max_image_tokens: int
    tokens_key: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: str
    towers: dict[str, Tower]


@cache
def towers() -> Mapping[str, Tower]:
    """Return the encoders by kind."""
    text = resources.files(__package__).joinpath("data/towers.json").read_bytes()
    return msgspec.json.decode(text, type=_File).towers
