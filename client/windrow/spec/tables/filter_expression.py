"""The expression of a `filter` step: its small Python-like grammar, parsed to a tree that a worker evaluates.

    expression  = and-part { "or" and-part }
    and-part    = not-part { "and" not-part }
    not-part    = "not" not-part | comparison
    comparison  = sum { ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum }     `a < b < c` is `(a < b) < c`
    sum         = product { ( "+" | "-" ) product }
    product     = sign { ( "*" | "/" | "//" | "%" ) sign }
    sign        = ( "+" | "-" ) sign | power
    power       = value [ "**" sign ]
    value       = operand { ".startswith(" expression ")" }
    operand     = number | text | "True" | "False" | name | col("name") | "(" expression ")"
                | datetime(year[, month[, day[, hour[, minute[, second]]]]]) | startswith(expression, expression)

A tree is made of lists: ["column", name], ["value", literal], ["datetime", text], ["not", tree], ["-", tree], and
[operator, tree, tree] with one of `OPERATORS`. So it travels as JSON.
Reference: docs/reference/azure-ml/mltable.md#filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple, TypeAlias

Tree: TypeAlias = "list[str | int | float | bool | Tree]"

OPERATORS = ("or", "and", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "**", "startswith")
DEPTH_MAX = 50
"""The deepest nesting of parentheses, signs and `not`."""

TERMS_MAX = 500
"""The most operators, columns and values of an expression: trees are walked by recursion."""

DIGITS_MAX = 40
"""A whole number with more digits fits into 64 bits only with leading zeros."""

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'(?:[^'\\]|\\.)+'|\"(?:[^\"\\]|\\.)+\")"
    r"|(?P<sign>==|!=|<=|>=|\*\*|//|[<>+\-*/%().,]))"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\\'\"nrt])")
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_ADVICE = {
    "=": 'write "==" to compare',
    "&": 'write "and"',
    "|": 'write "or"',
    "!": 'write "not", or "!=" between two values',
    "'": "text must not be empty, and ends with the quote it began with",
    '"': "text must not be empty, and ends with the quote it began with",
    ".": 'a number begins with a digit: "0.5"',
    "[": 'write col("name") for a column',
}
_STRANGERS = {"AND": "and", "OR": "or", "NOT": "not", "And": "and", "Or": "or", "Not": "not"}
_FUNCTIONS = "col, datetime and startswith"


class FilterSyntaxError(ValueError):
    """Text that is not a filter expression; says what is wrong, where, and what to write."""


class Expression(NamedTuple):
    """A parsed filter: as written, its tree, and the columns it names, in their order."""

    text: str
    tree: Tree
    columns: tuple[str, ...]


def parse_filter(text: str) -> Expression:
    """Parse an expression. Raises FilterSyntaxError."""
    parser = _Parser(text)
    tree = parser.whole()
    return Expression(text, tree, tuple(dict.fromkeys(parser.columns)))


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at, end)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            advice = _ADVICE.get(text[at], f"it may hold columns, numbers, text, {_FUNCTIONS}, and operators")
            raise FilterSyntaxError(f"{_near(text, at)} does not belong there; {advice}.")
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind))
        at = found.end()
    yield _Token("end", "", len(text))


def _near(text: str, at: int) -> str:
    rest = text[at : at + 20].split("\n")[0].rstrip()
    return f'"{rest}" (character {at + 1})' if rest else "its end"


def _unescaped(text: str) -> str:
    """The text between quotes with its escapes resolved as in Python; any other backslash stands for itself."""
    return _ESCAPE.sub(_character, text[1:-1])


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if code[0] in "xu" else _ESCAPED[code]


class _Parser:
    """A recursive descent parser, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self.columns: list[str] = []
        if len(self._tokens) > TERMS_MAX:
            raise FilterSyntaxError(f"it has more than {TERMS_MAX} parts. Make it shorter.")

    def whole(self) -> Tree:
        if self._next.kind == "end":
            raise FilterSyntaxError("it is empty.")
        tree = self._or()
        token = self._next
        if token.kind != "end":
            word = _STRANGERS.get(token.text)
            advice = f'write "{word}"' if word else 'an operator such as "and", "==" or "<" is expected there'
            if token.text in ("in", "is"):
                advice = f'there is no "{token.text}"; compare with "==" and join by "or"'
            raise FilterSyntaxError(f"{_near(self._text, token.at)} does not belong there; {advice}.")
        return tree

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str:
        """Returns the next token and moves past it if it is one of these operators or words; otherwise returns an
        empty text.
        """
        token = self._next
        if token.kind in ("sign", "name") and token.text in texts:
            self._at += 1
            return token.text
        return ""

    def _must(self, text: str, what: str) -> None:
        if not self._take(text):
            raise FilterSyntaxError(f'{_near(self._text, self._next.at)} is where "{text}" should be, {what}.')

    def _left(self, operand: Callable[[], Tree], *operators: str) -> Tree:
        tree = operand()
        while operator := self._take(*operators):
            tree = [operator, tree, operand()]
        return tree

    def _or(self) -> Tree:
        return self._left(self._and, "or")

    def _and(self) -> Tree:
        return self._left(self._not, "and")

    def _not(self) -> Tree:
        if self._take("not"):
            return ["not", self._deeper(self._not)]
        return self._left(self._sum, *_COMPARISONS)

    def _sum(self) -> Tree:
        return self._left(self._product, "+", "-")

    def _product(self) -> Tree:
        return self._left(self._sign, "*", "/", "//", "%")

    def _sign(self) -> Tree:
        sign = self._take("+", "-")
        if not sign:
            return self._power()
        tree = self._deeper(self._sign)
        return ["-", tree] if sign == "-" else tree

    def _power(self) -> Tree:
        tree = self._value()
        return ["**", tree, self._deeper(self._sign)] if self._take("**") else tree

    def _value(self) -> Tree:
        tree = self._operand()
        while self._take("."):
            if not self._take("startswith"):
                raise FilterSyntaxError(
                    f'{_near(self._text, self._next.at)} is not a text function; the only one is "startswith".'
                )
            self._must("(", 'behind "startswith"')
            tree = ["startswith", tree, self._deeper(self._or)]
            self._must(")", 'after the text that "startswith" looks for')
        return tree

    def _operand(self) -> Tree:
        token = self._next
        self._at += 1
        if token.kind == "number":
            return ["value", self._number(token)]
        if token.kind == "text":
            return ["value", _unescaped(token.text)]
        if token.text == "(":
            tree = self._deeper(self._or)
            self._must(")", "to close a parenthesis")
            return tree
        if token.kind == "name" and token.text not in ("and", "or", "not"):
            return self._named(token)
        self._at -= 1
        raise FilterSyntaxError(
            f"a column, number or text is missing before {_near(self._text, token.at)}."
            if token.kind != "end"
            else "it ends where a column, number or text should be."
        )

    def _named(self, token: _Token) -> Tree:
        if token.text in ("True", "False"):
            return ["value", token.text == "True"]
        if not self._take("("):
            return self._column(token.text)
        if token.text == "col":
            tree = self._column_called()
        elif token.text == "datetime":
            tree = self._datetime(token)
        elif token.text == "startswith":
            text = self._deeper(self._or)
            self._must(",", 'between the two values of "startswith"')
            tree = ["startswith", text, self._deeper(self._or)]
        else:
            raise FilterSyntaxError(f"{_near(self._text, token.at)} is not a function; there are {_FUNCTIONS}.")
        self._must(")", f'to close "{token.text}("')
        return tree

    def _column(self, name: str) -> Tree:
        self.columns.append(name)
        return ["column", name]

    def _column_called(self) -> Tree:
        token = self._next
        if token.kind not in ("text", "name"):
            raise FilterSyntaxError(f'{_near(self._text, token.at)} is not the name of a column; write col("name").')
        self._at += 1
        return self._column(_unescaped(token.text) if token.kind == "text" else token.text)

    def _datetime(self, token: _Token) -> Tree:
        parts = list[int]()
        while self._next.kind == "number" and len(parts) < 6:
            part = self._number(self._next)
            if not isinstance(part, int):
                break
            self._at += 1
            parts.append(part)
            if not self._take(","):
                break
        if not parts or self._next.text != ")":
            raise FilterSyntaxError(
                f"{_near(self._text, token.at)} takes whole numbers: year, month, day, hour, minute, second."
            )
        try:
            year, month, day, hour, minute, second = (parts + [1, 1, 1, 0, 0, 0][len(parts) :])[:6]
            return ["datetime", datetime(year, month, day, hour, minute, second).isoformat()]
        except ValueError as error:
            raise FilterSyntaxError(f"{_near(self._text, token.at)} is not a time: {error}.") from None

    def _number(self, token: _Token) -> int | float:
        text = token.text
        if any(char in text for char in ".eE") and not text.lower().startswith("0x"):
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise FilterSyntaxError(f"{_near(self._text, token.at)} is larger than any decimal of 64 bits.")
            return value
        digits = text.lower().removeprefix("0x")
        value = int(digits, 16 if digits != text.lower() else 10) if len(digits) < DIGITS_MAX else 2**64
        if value > 2**63 - 1:
            raise FilterSyntaxError(f"{_near(self._text, token.at)} is larger than any whole number of 64 bits.")
        return value

    def _deeper(self, parse: Callable[[], Tree]) -> Tree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterSyntaxError(f"it is nested deeper than {DEPTH_MAX} levels. Write it flatter.")
        tree = parse()
        self._depth -= 1
        return tree
