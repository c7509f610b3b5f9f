"""Splits shell scripts into commands and words, with quotes and variables resolved.

It reads what people keep vLLM commands in; it is no shell: control flow is passed over, and what
only a run could tell is said to be unresolved.
"""

import re
from collections.abc import Iterator

import msgspec

from service.tuning.lint.found import Word
from service.tuning.lint.limits import MAX_LINE_CHARACTERS, MAX_WORDS, Unreadable
from service.tuning.lint.template import expressions
from service.tuning.lint.text import EMPTY, Span, Text, join

_BLANKS = " \t\r"
_ENDS = "\n;&|()"
_EXPANSION = re.compile(
    r"\$(?:\{(?P<braced>[A-Za-z_]\w*|[@*#?0-9])(?P<index>\[[@*]\])?"
    r"(?P<operator>:?[-=+?](?P<word>[^{}]*))?\}"
    r"|(?P<plain>[A-Za-z_]\w*|[@*#?0-9]))"
)
_SUBSTITUTION = re.compile(r"\$\(|\$\{|`|\{\{")
_EMPTY = re.compile(r"[ \t\r]+|\n[ \t\r\n]*")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w.|/-]*>(?=\s|$)|(?:\.\.\.|…)(?=\s|$)")
"""What documentation leaves to the reader: <model>, or three dots for more arguments."""
_NAMED_PLACEHOLDER = re.compile(r"<[A-Za-z][\w.|-]*>")
_KEPT_ESCAPES = '"\\$`\n'
_OPENERS = frozenset({"if", "for", "while", "until", "case", "select"})
_CLOSERS = frozenset({"fi", "done", "esac"})


class Command(msgspec.Struct, frozen=True):
    """One simple command: its words in order."""

    words: tuple[Word, ...]
    depth: int = 0
    """How many ifs and loops it stands in."""


class Array(msgspec.Struct, frozen=True):
    """Words that a script collects under one name."""

    words: tuple[Word, ...]


Scope = dict[str, "Word | Array"]
"""What names stand for at a place of the script."""


class _Piece(msgspec.Struct, frozen=True):
    text: Text
    unresolved: str | None = None
    is_split: bool = False
    words: tuple[Word, ...] | None = None


class Splitter:
    """Walks a script once, from left to right."""

    def __init__(self, text: Text, scope: Scope) -> None:
        longest = max((len(line) for line in text.value.split("\n")), default=0)
        if longest > MAX_LINE_CHARACTERS:
            raise Unreadable(
                f"a line is longer than {MAX_LINE_CHARACTERS:,} characters", offset=text.start
            )
        self._text = text
        self._value = text.value
        self._at = 0
        self._scope = scope
        self._count = 0
        self.nesting = 0
        """How many ifs and loops the place stands in; kept by whoever takes the commands."""
        self._heredocs: list[str] = []

    def commands(self) -> Iterator[list[Word]]:
        """Yield the words of each simple command; assignments of arrays are one word each."""
        words: list[Word] = []
        while self._at < len(self._value):
            character = self._value[self._at]
            if self._passes_over(character, is_between=not words):
                continue
            if character in _ENDS:
                if words:
                    yield words
                    words = []
                self._at += 1
                if character == "\n":
                    self._skip_heredocs()
            elif (placeholder := _PLACEHOLDER.match(self._value, self._at)) is not None:
                words.append(self._open_word(placeholder))
            elif character in "<>":
                self._redirect()
            else:
                words += self._word()
        yield words

    def _passes_over(self, character: str, *, is_between: bool) -> bool:
        """Pass over blanks, continued lines, comments, and empty lines between commands."""
        if character in _BLANKS or (character == "\n" and is_between and not self._heredocs):
            self._at = self._past_blanks()
        elif self._value.startswith(("\\\n", "\\\r\n"), self._at):
            self._at = self._value.index("\n", self._at) + 1
        elif character == "#":
            self._skip_line()
        else:
            return self._is_redirection()
        return True

    def _past_blanks(self) -> int:
        """Return the place after blanks and empty lines, which end no command."""
        match = _EMPTY.match(self._value, self._at)
        return self._at + 1 if match is None else max(match.end(), self._at + 1)

    def _is_redirection(self) -> bool:
        """Pass over `&>file` and `>&2`, in which & ends nothing."""
        if self._value.startswith("&>", self._at):
            self._at += 1
            self._redirect()
            return True
        return False

    def _open_word(self, match: re.Match[str]) -> Word:
        self._at = match.end()
        text = self._text.cut(match.start(), match.end())
        return Word(text, text.value, text.value[0] != "<", text.span)

    def _redirect(self) -> None:
        match = _HEREDOC.match(self._value, self._at)
        if match is not None and not self._value.startswith("<<<", self._at):
            self._heredocs.append(match.group(2))
            self._at = match.end()
            return
        while self._at < len(self._value) and self._value[self._at] in "<>&|":
            self._at += 1
        while self._at < len(self._value) and self._value[self._at] in _BLANKS:
            self._at += 1
        if self._at < len(self._value) and self._value[self._at] not in _ENDS:
            self._word()

    def _skip_line(self) -> None:
        end = self._value.find("\n", self._at)
        self._at = len(self._value) if end < 0 else end

    def _skip_heredocs(self) -> None:
        for mark in self._heredocs:
            match = re.compile(rf"^[ \t]*{re.escape(mark)}[ \t]*$", re.MULTILINE).search(
                self._value, self._at
            )
            self._at = len(self._value) if match is None else match.end()
        self._heredocs = []

    def _word(self) -> list[Word]:
        """Read one word; an unquoted variable may give several or none."""
        start = self._at
        pieces: list[_Piece] = []
        while self._at < len(self._value):
            character = self._value[self._at]
            placeholder = _NAMED_PLACEHOLDER.match(self._value, self._at)
            if placeholder is not None and pieces:
                pieces.append(self._open_piece(placeholder))
                continue
            if character in _BLANKS or character in "\n;|()<>":
                if character == "(" and self._opens_array(pieces):
                    return [self._array(start, pieces)]
                break
            if character == "&":
                break
            pieces.append(self._piece(character))
        self._count += 1
        if self._count > MAX_WORDS:
            raise Unreadable(f"it has more than {MAX_WORDS:,} words", offset=self._text.start)
        # A redirection such as 2>&1 leaves its number behind.
        if self._at < len(self._value) and self._value[self._at] in "<>":
            raw = self._value[start : self._at]
            if raw.isdigit():
                return []
        return self._assembled(pieces, self._span(start, self._at))

    def _open_piece(self, match: re.Match[str]) -> _Piece:
        self._at = match.end()
        return _Piece(self._text.cut(match.start(), match.end()), match.group(0))

    def _span(self, start: int, end: int) -> Span:
        offsets = self._text.offsets
        last = min(max(start, end - 1), len(offsets) - 1)
        return Span(offsets[min(start, last)], offsets[last] + 1)

    def _assembled(self, pieces: list[_Piece], span: Span) -> list[Word]:
        if len(pieces) == 1 and pieces[0].words is not None:
            return list(pieces[0].words)
        unresolved = next((p.unresolved for p in pieces if p.unresolved is not None), None)
        text = join([piece.text for piece in pieces]) if pieces else EMPTY
        if unresolved is None and any(p.is_split for p in pieces) and len(pieces) == 1:
            return _split(pieces[0].text, span)
        only = len(pieces) == 1 and pieces[0].is_split and unresolved is not None
        return [Word(text, unresolved, is_splittable=only, span=span)]

    def _piece(self, character: str) -> _Piece:
        if self._value.startswith("$'", self._at):
            self._at += 1
            return self._single_quoted()
        if character == "'":
            return self._single_quoted()
        if character == '"':
            return self._double_quoted()
        if character == "\\":
            return self._escaped()
        if character in "$`" or self._value.startswith("{{", self._at):
            return self._expansion(is_quoted=False)
        end = self._at + 1
        while end < len(self._value) and self._value[end] not in "'\"\\$` \t\r\n;|()<>&{":
            end += 1
        piece = self._text.cut(self._at, end)
        self._at = end
        return _Piece(piece)

    def _single_quoted(self) -> _Piece:
        end = self._value.find("'", self._at + 1)
        end = len(self._value) if end < 0 else end
        piece = self._text.cut(self._at + 1, end)
        self._at = end + 1
        return _Piece(piece, _template_in(piece.value))

    def _escaped(self) -> _Piece:
        following = self._value[self._at + 1 : self._at + 2]
        piece = EMPTY if following == "\n" else self._text.cut(self._at + 1, self._at + 2)
        self._at += 2
        return _Piece(piece)

    def _double_quoted(self) -> _Piece:
        self._at += 1
        parts: list[_Piece] = []
        while self._at < len(self._value) and self._value[self._at] != '"':
            character = self._value[self._at]
            if character == "\\" and self._value[self._at + 1 : self._at + 2] in _KEPT_ESCAPES:
                parts.append(self._escaped())
            elif character in "$`" or self._value.startswith("{{", self._at):
                parts.append(self._expansion(is_quoted=True))
            else:
                end = self._at + 1
                while end < len(self._value) and self._value[end] not in '\\$`"{':
                    end += 1
                parts.append(_Piece(self._text.cut(self._at, end)))
                self._at = end
        self._at += 1
        if len(parts) == 1 and parts[0].words is not None:
            return parts[0]
        unresolved = next((p.unresolved for p in parts if p.unresolved is not None), None)
        return _Piece(join([p.text for p in parts]) if parts else EMPTY, unresolved)

    def _expansion(self, *, is_quoted: bool) -> _Piece:
        match = _EXPANSION.match(self._value, self._at)
        if match is not None:
            self._at = match.end()
            return self._variable(match, is_quoted=is_quoted)
        if _SUBSTITUTION.match(self._value, self._at) is None:
            piece = self._text.cut(self._at, self._at + 1)
            self._at += 1
            return _Piece(piece)
        start = self._at
        self._at = _end_of_substitution(self._value, start)
        piece = self._text.cut(start, self._at)
        return _Piece(piece, piece.value[:80], is_split=not is_quoted)

    def _variable(self, match: re.Match[str], *, is_quoted: bool) -> _Piece:
        raw = self._text.cut(match.start(), match.end())
        name = match.group("braced") or match.group("plain")
        operator = match.group("operator") or ""
        if name in "@*":
            # Further arguments of whoever starts the script: none are known, none are assumed.
            return _Piece(EMPTY, words=())
        known = self._scope.get(name)
        if isinstance(known, Array):
            return _Piece(EMPTY, words=known.words)
        is_usable = known is not None and known.unresolved is None
        is_alternative = operator.lstrip(":")[:1] == "+"
        is_filled = known is not None and (bool(known.value) or not operator.startswith(":"))
        if known is not None and is_usable and is_filled and not is_alternative:
            return _Piece(known.text, is_split=not is_quoted)
        if operator.lstrip(":")[:1] in ("-", "=") and _is_plain(match.group("word")):
            word = self._text.cut(match.start("word"), match.end("word"))
            return _Piece(_unquoted(word), is_split=not is_quoted)
        return _Piece(raw, raw.value, is_split=not is_quoted)

    def _opens_array(self, pieces: list[_Piece]) -> bool:
        text = "".join(piece.text.value for piece in pieces)
        return re.fullmatch(r"[A-Za-z_]\w*\+?=", text) is not None

    def _array(self, start: int, pieces: list[_Piece]) -> Word:
        """Read `name=( ... )` and remember it; the word itself stands for nothing."""
        name, _, _ = "".join(piece.text.value for piece in pieces).partition("=")
        self._at += 1
        words: list[Word] = []
        while self._at < len(self._value) and self._value[self._at] != ")":
            character = self._value[self._at]
            if character in _BLANKS or character == "\n":
                self._at += 1
            elif self._value.startswith("\\\n", self._at):
                self._at += 2
            elif character == "#":
                self._skip_line()
            elif character in ";&|<>(":
                self._at += 1
            else:
                words += self._word()
        self._at += 1
        if self.nesting and name.removesuffix("+") in self._scope:
            # Which branch runs is not known here.
            shown = f"${{{name.removesuffix('+')}[@]}}"
            span = self._span(start, min(self._at, len(self._value)))
            words = [Word(Text.near(shown, span.start), shown, is_splittable=True, span=span)]
        before = self._scope.get(name.removesuffix("+"))
        earlier = before.words if name.endswith("+") and isinstance(before, Array) else ()
        self._scope[name.removesuffix("+")] = Array((*earlier, *words))
        return Word(EMPTY, span=self._span(start, min(self._at, len(self._value))))


def nesting_change(word: str) -> int:
    """Return 1 for a word that opens an if or a loop, -1 for one that closes it, else 0."""
    if word in _OPENERS:
        return 1
    return -1 if word in _CLOSERS else 0


def _template_in(value: str) -> str | None:
    found = next(expressions(value), None) if "{{" in value else None
    return None if found is None else value[slice(*found)][:80]


def _is_plain(word: str) -> bool:
    return "$" not in word and "`" not in word


def _unquoted(text: Text) -> Text:
    value = text.value
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return text.cut(1, len(value) - 1)
    return text


def _split(text: Text, span: Span) -> list[Word]:
    """Return the words that an unquoted variable gives; their place is the variable's."""
    return [
        Word(text.cut(match.start(), match.end()), span=span)
        for match in re.finditer(r"\S+", text.value)
    ]


def _end_of_substitution(value: str, start: int) -> int:
    """Return the end of `$( )`, `${ }`, backticks or a template's `{{ }}`."""
    if value[start] == "`":
        end = value.find("`", start + 1)
        return len(value) if end < 0 else end + 1
    if value.startswith("{{", start):
        end = value.find("}}", start)
        return len(value) if end < 0 else end + 2
    opener, closer = ("(", ")") if value[start + 1] == "(" else ("{", "}")
    depth = 0
    for index in range(start + 1, len(value)):
        depth += (value[index] == opener) - (value[index] == closer)
        if depth == 0:
            return index + 1
    return len(value)
