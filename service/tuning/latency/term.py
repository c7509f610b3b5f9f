"""One term of a price: seconds by the data sheet, and the factors that correct them."""

import msgspec


class Term(msgspec.Struct, frozen=True):
    """`seconds` times the product of its factors adds to price `component`."""

    component: int
    seconds: float
    factors: tuple[str, ...]
