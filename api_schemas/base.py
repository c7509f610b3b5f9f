"""The four kinds of Struct on the wire, and the constrained scalars they share."""

from typing import Annotated, Any

import msgspec

Json = Any
"""A JSON value that is carried along as it is."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What callers send: unknown fields are refused, absent optional fields are None."""


class Value(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """A noun used in requests and answers alike; what is not set is left out."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What callers receive: every field is always present."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored or queued: only ever gains fields, and those have defaults."""

    schema_version: int = 1


PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
PositiveFloat = Annotated[float, msgspec.Meta(ge=1e-6, le=1e12)]
"""Far below any real quantity, and far from what makes a quotient overflow."""
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Gib = Annotated[float, msgspec.Meta(ge=0, le=1e6, description="Size in GiB (2^30 bytes).")]
Milliseconds = Annotated[float, msgspec.Meta(ge=1e-3, le=1e9, description="Milliseconds.")]
TokenCount = Annotated[int, msgspec.Meta(ge=1, le=100_000_000, description="Tokens.")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
ModelId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_.\-]*(/[A-Za-z0-9_.][A-Za-z0-9_.\-]*)*$(?!\n)",
        description="Model identifier, as on the Hugging Face Hub; it can never start with a dash.",
        examples=["meta-llama/Llama-3.1-8B-Instruct"],
    ),
]
EngineVersionText = Annotated[
    str,
    msgspec.Meta(
        min_length=3,
        max_length=32,
        pattern=r"^v?[0-9]+\.[0-9]+[A-Za-z0-9.\-+]*$(?!\n)",
        description="vLLM version.",
        examples=["0.33.0"],
    ),
]
Labels = Annotated[
    dict[
        Annotated[
            str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.\-/]+$(?!\n)")
        ],
        Annotated[str, msgspec.Meta(max_length=256)],
    ],
    msgspec.Meta(max_length=64, description="Labels to find the record by."),
]
