"""Files inside files: a ConfigMap's scripts and configurations, a service's own YAML."""

from collections.abc import Callable

import msgspec

from service.tuning.lint.found import FoundEngine, Given, Reading, Remark, Variable, Word
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.text import SourceFile, Span, Text


def read_nested(text: Text, name: str, read: Callable[[SourceFile], Reading]) -> Reading:
    """Return what the text holds as a file of its own, with places in the outer file.

    Raises:
        Unreadable: as the inner reader does, with a place in the outer file.
    """
    place = _Place(text)
    try:
        reading = read(SourceFile(name, text.value))
    except Unreadable as error:
        raise Unreadable(error.reason, offset=place.offset(error.offset)) from None
    return Reading(
        engines=tuple(place.engine(engine) for engine in reading.engines),
        remarks=tuple(place.remark(remark) for remark in reading.remarks),
    )


class _Place:
    """Turns offsets in the text into offsets in the file around it."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def offset(self, inner: int) -> int:
        offsets = self._text.offsets
        if not len(offsets):
            return 0
        return offsets[inner] if inner < len(offsets) else offsets[-1] + 1

    def span(self, inner: Span) -> Span:
        if inner.end <= inner.start:
            start = self.offset(inner.start)
            return Span(start, start)
        return Span(self.offset(inner.start), self.offset(inner.end - 1) + 1)

    def word(self, word: Word) -> Word:
        moved = Text(word.text.value, [self.offset(offset) for offset in word.text.offsets])
        span = None if word.span is None else self.span(word.span)
        return msgspec.structs.replace(word, text=moved, span=span)

    def given(self, given: Given) -> Given:
        return msgspec.structs.replace(
            given, name_span=self.span(given.name_span), value_span=self.span(given.value_span)
        )

    def variable(self, variable: Variable) -> Variable:
        return msgspec.structs.replace(variable, span=self.span(variable.span))

    def remark(self, remark: Remark) -> Remark:
        return msgspec.structs.replace(remark, span=self.span(remark.span))

    def engine(self, engine: FoundEngine) -> FoundEngine:
        container = engine.container
        if container is not None:
            gpus_span = None if container.gpus_span is None else self.span(container.gpus_span)
            container = msgspec.structs.replace(
                container, span=self.span(container.span), gpus_span=gpus_span
            )
        return msgspec.structs.replace(
            engine,
            span=self.span(engine.span),
            words=tuple(self.word(word) for word in engine.words),
            given=tuple(self.given(given) for given in engine.given),
            model=None if engine.model is None else self.word(engine.model),
            env=tuple(self.variable(variable) for variable in engine.env),
            container=container,
            remarks=tuple(self.remark(remark) for remark in engine.remarks),
        )
