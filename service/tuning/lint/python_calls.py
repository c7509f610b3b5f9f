"""Python: `LLM(...)` and `AsyncEngineArgs(...)` calls, parsed and never executed."""

import ast
import re
import warnings
from collections.abc import Iterator

from api_schemas.base import Json
from service.tuning.lint.found import FoundEngine, Given, Reading, Variable, Word
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.shell import engine_of_words
from service.tuning.lint.text import SourceFile, Span, Text

_PARSED = "<checked>"
# What the parser thinks of other people's literals is nothing to print.
warnings.filterwarnings("ignore", category=SyntaxWarning, module=re.escape(_PARSED))
warnings.filterwarnings("ignore", category=DeprecationWarning, module=re.escape(_PARSED))
_CLASSES = frozenset({"LLM", "EngineArgs", "AsyncEngineArgs"})


def read_python(file: SourceFile) -> Reading:
    """Return the engines that a script makes with vLLM's classes or starts as a command.

    Raises:
        Unreadable: it is no Python, or nested beyond what the parser takes.
    """
    try:
        tree = ast.parse(file.content, filename=_PARSED)
    except SyntaxError as error:
        place = file.offset_of(max(0, (error.lineno or 1) - 1), 0)
        raise Unreadable(f"it is not Python: {error.msg}", offset=place) from None
    except (ValueError, MemoryError, RecursionError):
        raise Unreadable("it is not Python that can be parsed") from None
    return _Module(file, tree).read()


class _Module:
    """One parsed script."""

    def __init__(self, file: SourceFile, tree: ast.Module) -> None:
        self._file = file
        self._tree = tree
        self._starts = _line_starts(file.content)
        self._constants: dict[str, ast.expr] = {}
        self._env: list[Variable] = []

    def read(self) -> Reading:
        nodes = list(ast.walk(self._tree))
        for node in nodes:
            self._remember(node)
        if not any(_imports_vllm(node) for node in nodes):
            return Reading(engines=tuple(self._commands(nodes)))
        calls = [node for node in nodes if isinstance(node, ast.Call) and _is_engine(node)]
        engines = [self._engine(call) for call in calls]
        return Reading(engines=(*engines, *self._commands(nodes)))

    def _remember(self, node: ast.AST) -> None:
        """Keep what names stand for; a name bound twice stands for nothing known."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._bind(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._bind(name, value)
            case ast.Assign(
                targets=[ast.Subscript(value=target, slice=ast.Constant(value=str() as name))],
                value=value,
            ) if _is_environ(target):
                self._set_env(name, value)
            case ast.Call(func=ast.Attribute(value=target, attr="update"), args=[ast.Dict() as d]):
                if _is_environ(target):
                    for key, value in zip(d.keys, d.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            self._set_env(key.value, value)
            case _:
                pass

    def _bind(self, name: str, value: ast.expr) -> None:
        self._constants[name] = ast.Name("") if name in self._constants else value

    def _set_env(self, name: str, value: ast.expr) -> None:
        known = value.value if isinstance(value, ast.Constant) else None
        text = known if isinstance(known, str) else None
        self._env.append(Variable(name, text, self._span(value)))

    def _engine(self, call: ast.Call) -> FoundEngine:
        keywords = list(self._keywords(call))
        model = self._model(call, keywords)
        return FoundEngine(
            title=f"{_called(call)}(...)",
            form="python",
            span=self._span(call),
            usage="llm" if _called(call) == "LLM" else "serve",
            given=tuple(given for given in keywords if given.name != "model"),
            model=model,
            env=tuple(self._env),
        )

    def _model(self, call: ast.Call, keywords: list[Given]) -> Word | None:
        if call.args:
            value, unresolved = self._value(call.args[0])
            return _word(value, unresolved, self._span(call.args[0]))
        for given in keywords:
            if given.name == "model":
                return _word(given.value, given.unresolved, given.value_span)
        return None

    def _keywords(self, call: ast.Call) -> Iterator[Given]:
        for keyword in call.keywords:
            if keyword.arg is not None:
                value, unresolved = self._value(keyword.value)
                start = self._offset(keyword.lineno, keyword.col_offset)
                name = Span(start, start + len(keyword.arg))
                yield Given(keyword.arg, value, name, self._span(keyword.value), unresolved)
            else:
                yield from self._unpacked(keyword.value)

    def _unpacked(self, node: ast.expr) -> Iterator[Given]:
        """Yield the entries of `**SETTINGS` where it is a dictionary in the same script."""
        found = self._constants.get(node.id, node) if isinstance(node, ast.Name) else node
        if not isinstance(found, ast.Dict):
            shown = ast.unparse(node)[:80]
            yield Given(f"**{shown}", None, self._span(node), self._span(node), f"**{shown}")
            return
        for key, entry in zip(found.keys, found.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                value, unresolved = self._value(entry)
                yield Given(key.value, value, self._span(key), self._span(entry), unresolved)

    def _value(self, node: ast.expr) -> tuple[Json, str | None]:
        """Return a literal's value, or what cannot be resolved."""
        bound = self._constants.get(node.id) if isinstance(node, ast.Name) else None
        try:
            return _plain(ast.literal_eval(node if bound is None else bound)), None
        except (ValueError, TypeError, RecursionError, MemoryError):
            return None, ast.unparse(node)[:80]

    def _commands(self, nodes: list[ast.AST]) -> Iterator[FoundEngine]:
        """Yield engines that are started as a command given as a list."""
        for node in nodes:
            if isinstance(node, ast.List) and len(node.elts) > 1:
                words = [self._argument(item) for item in node.elts]
                if words[0].value.endswith(("vllm", "python", "python3")):
                    engine = engine_of_words(words, env=self._env, form="items")
                    if engine is not None:
                        yield engine

    def _argument(self, node: ast.expr) -> Word:
        value, unresolved = self._value(node)
        text = value if isinstance(value, str) else unresolved or str(value)
        is_many = isinstance(node, ast.Starred)
        return Word(Text.near(text, self._span(node).start), unresolved, is_many, self._span(node))

    def _span(self, node: ast.expr | ast.keyword) -> Span:
        start = self._offset(node.lineno, node.col_offset)
        if node.end_lineno is None or node.end_col_offset is None:
            return Span(start, start)
        return Span(start, self._offset(node.end_lineno, node.end_col_offset))

    def _offset(self, line: int, byte_column: int) -> int:
        """Return the offset of a place that Python counts in bytes."""
        start = self._starts[line - 1]
        text = self._file.content[start : start + byte_column]
        if text.isascii():
            return start + byte_column
        return start + len(text.encode()[:byte_column].decode(errors="ignore"))


def _line_starts(content: str) -> list[int]:
    return [0, *(index + 1 for index, c in enumerate(content) if c == "\n")]


def _imports_vllm(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name.split(".")[0] == "vllm" for name in names)
        case ast.ImportFrom(module=str() as module):
            return module.split(".")[0] == "vllm"
        case _:
            return False


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_engine(call: ast.Call) -> bool:
    return _called(call) in _CLASSES


def _is_environ(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr=name) | ast.Name(id=name):
            return name == "environ"
        case _:
            return False


def _plain(value: object) -> Json:
    """Return a literal as JSON holds it; raises TypeError for sets, bytes and the like."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            raise TypeError(type(value).__name__)


def _word(value: Json, unresolved: str | None, span: Span) -> Word:
    text = value if isinstance(value, str) else ""
    return Word(Text.near(text, span.start), unresolved, span=span)
