"""Enough of a shell to read a launch script: variables, arrays, quotes, continuations, defaults, arithmetic.

Nothing is executed. Both branches of an `if` are read, in order; what only a running shell knows (`$(…)`, an
environment variable) stays as it is written, so that the reader of a value can name it.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

LONGEST = 200_000  # characters of one expanded value: A="$A$A" in 40 lines would be a terabyte
MOST = 20_000  # words
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_KEYWORDS = frozenset(
    ("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "function", "{",
     "}", "!", "time")
)  # fmt: skip
_LAUNCHERS = frozenset(("torchrun", "python", "python3", "deepspeed", "srun", "accelerate", "mpirun"))
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
              ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}  # fmt: skip


@dataclass(slots=True)
class Word:
    """One word as written: pieces of text, each with whether `$` expands in it and whether its spaces are kept."""

    pieces: list[tuple[str, bool, bool]] = field(default_factory=list)

    @property
    def raw(self) -> str:
        """The text without its quotes."""
        return "".join(text for text, _, _ in self.pieces)


@dataclass(slots=True)
class Script:
    """What a script sets and runs."""

    variables: dict[str, Any] = field(default_factory=dict)  # text, or a list of words
    environment: dict[str, str] = field(default_factory=dict)  # exported, or set before a command
    commands: list[list[str]] = field(default_factory=list)
    scheduler: dict[str, str] = field(default_factory=dict)  # #SBATCH options

    @property
    def launches(self) -> list[list[str]]:
        """Commands that start a program on devices."""
        return [c for c in self.commands if c and PurePosixPath(c[0]).name in _LAUNCHERS]


def read_script(text: str, environment: Mapping[str, str] | None = None) -> Script:
    """The script in `text`; `environment` are variables set outside it."""
    script = Script(variables=dict(environment or {}), environment=dict(environment or {}))
    script.scheduler = dict(re.findall(r"^#SBATCH\s+-{1,2}([\w-]+)[=\s]+([^\s#]+)", text, re.MULTILINE))
    for statement in _statements(text):
        _run(statement, script)
    return script


# ---------------------------------------------------------------------------------------------- words


def _statements(text: str) -> list[list[Any]]:
    """Statements as lists of words; an array is a tuple (name, append, words)."""
    out: list[list[Any]] = [[]]
    i, n, count = 0, len(text), 0
    array: list[Word] | None = None
    while i < n and count < MOST:
        c = text[i]
        if c == "\\" and text.startswith(("\\\n", "\\\r\n"), i):
            i += 2 if text[i + 1] == "\n" else 3
        elif c in " \t\r":
            i += 1
        elif c == "#":
            i = _line_end(text, i)
        elif c == "\n" or c in ";|&":
            if array is None and out[-1]:
                out.append([])
            i += 1
        elif c == ")":
            array, i = None, i + 1
        elif c in "(<>":
            i += 1
        else:
            word, i = _word(text, i)
            count += 1
            if array is not None:
                array.append(word)
            elif i < n and text[i] == "(" and (found := _ASSIGN.fullmatch(word.raw)):
                array = []
                out[-1].append((found[1], bool(found[2]), array))
                i += 1
            elif word.pieces:
                out[-1].append(word)
    return [statement for statement in out if statement]


def _line_end(text: str, i: int) -> int:
    end = text.find("\n", i)
    return len(text) if end < 0 else end


def _word(text: str, i: int) -> tuple[Word, int]:
    """The word that begins at `i`, and where it ends."""
    word, n = Word(), len(text)
    plain: list[str] = []

    def flush() -> None:
        if plain:
            word.pieces.append(("".join(plain), True, False))
            plain.clear()

    while i < n:
        c = text[i]
        if c in " \t\r\n;|&()<>":
            break
        if c == "\\":
            if text.startswith("\\\n", i):
                break
            flush()
            word.pieces.append((text[i + 1 : i + 2], False, True))
            i += 2
        elif c == "'":
            flush()
            end = text.find("'", i + 1)
            end = n if end < 0 else end
            word.pieces.append((text[i + 1 : end], False, True))
            i = end + 1
        elif c == '"':
            flush()
            inside, i = _quoted(text, i + 1)
            word.pieces.append((inside, True, True))
        elif c == "$" and i + 1 < n and text[i + 1] in "({":
            end = _closing(text, i + 1)
            plain.append(text[i:end])
            i = end
        elif c == "`":
            end = text.find("`", i + 1)
            end = n if end < 0 else end + 1
            plain.append(text[i:end])
            i = end
        else:
            plain.append(c)
            i += 1
    flush()
    return word, max(i, 0)


def _quoted(text: str, i: int) -> tuple[str, int]:
    """The inside of double quotes, with `$…` left for later."""
    out, n = [], len(text)
    while i < n and text[i] != '"':
        if text[i] == "\\" and i + 1 < n:
            out.append("" if text[i + 1] == "\n" else text[i + 1] if text[i + 1] in '"\\$`' else text[i : i + 2])
            i += 2
        elif text[i] == "$" and i + 1 < n and text[i + 1] in "({":
            end = _closing(text, i + 1)
            out.append(text[i:end])
            i = end
        else:
            out.append(text[i])
            i += 1
    return "".join(out), i + 1


def _closing(text: str, i: int) -> int:
    """Behind the bracket that closes the one at `i`."""
    pairs, depth = {"(": ")", "{": "}"}, 0
    opening, closing = text[i], pairs[text[i]]
    for j in range(i, min(len(text), i + 10_000)):
        depth += (text[j] == opening) - (text[j] == closing)
        if depth == 0:
            return j + 1
    return min(len(text), i + 10_000)


# ---------------------------------------------------------------------------------------------- statements


def _run(statement: list[Any], script: Script) -> None:
    """Take the assignments of a statement, and remember its command."""
    words = list(statement)
    while words and isinstance(words[0], Word) and words[0].raw in _KEYWORDS:
        words.pop(0)
    exporting = (
        bool(words) and isinstance(words[0], Word) and words[0].raw in ("export", "declare", "local", "readonly")
    )
    if exporting:
        words.pop(0)
    prefixed: dict[str, str] = {}
    while words:
        if isinstance(words[0], tuple):
            name, append, items = words.pop(0)
            values = [value for item in items for value in expand(item, script)]
            old = script.variables.get(name, []) if append else []
            script.variables[name] = ((old if isinstance(old, list) else [old]) + values)[:MOST]
            continue
        found = _ASSIGN.match(words[0].raw)
        if found is None:
            if exporting and _NAME.fullmatch(words[0].raw):  # export NAME
                name = words.pop(0).raw
                script.environment[name] = _text(script.variables.get(name, ""))
                continue
            break
        name, value = found[1], _assigned(words.pop(0), found.end(), script)
        if found[2]:
            value = _text(script.variables.get(name, "")) + value
        script.variables[name] = value[:LONGEST]
        prefixed[name] = script.variables[name]
        if exporting or name in script.environment:
            script.environment[name] = script.variables[name]
    if words and not exporting:
        command = [value for word in words if isinstance(word, Word) for value in expand(word, script)][:MOST]
        script.environment.update(prefixed)
        if command:
            script.commands.append(command)


def _assigned(word: Word, start: int, script: Script) -> str:
    """The value of `NAME=…`, without word splitting."""
    out, skipped = [], 0
    for text, expands, _ in word.pieces:
        if skipped < start:
            text, skipped = text[start - skipped :], skipped + len(text)
        out.append(_substituted(text, script) if expands else text)
    return "".join(out)[:LONGEST]


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def expand(word: Word, script: Script) -> list[str]:
    """The words that a word becomes."""
    whole = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.raw)
    if whole is not None and isinstance(script.variables.get(whole[1]), list):
        return list(script.variables[whole[1]])
    split = any(expands and not keeps and "$" in text for text, expands, keeps in word.pieces)
    joined = "".join(_substituted(text, script) if expands else text for text, expands, _ in word.pieces)[:LONGEST]
    if split and not re.search(r"\$\(|`", joined):
        return joined.split()
    return [joined]


_USE = re.compile(  # bounded, so that a megabyte of `$((` is read in a second
    r"\$(?:\(\((?P<sum>.{0,300}?)\)\)|\{(?P<name>\w{1,80})(?:\[[@*]\])?(?P<rest>:?[-=+][^}]{0,300})?\}|(?P<plain>[A-Za-z_]\w*))"
)


def _substituted(text: str, script: Script, depth: int = 0) -> str:
    """The text with variables and sums in place; what is not known stays."""

    def value(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            found = arithmetic(_substituted(match["sum"], script, depth + 1), script)
            return match[0] if found is None else str(found)
        name, rest = match["name"] or match["plain"], match["rest"]
        if name in script.variables and (script.variables[name] or not rest):
            return _text(script.variables[name])
        if rest and rest.lstrip(":")[0] in "-=" and depth < 10:
            return _substituted(rest.lstrip(":")[1:], script, depth + 1)
        return match[0]

    return _USE.sub(value, text[:LONGEST])[:LONGEST]


def arithmetic(text: str, script: Script) -> int | None:
    """The value of a sum of whole numbers and variables, or None."""
    if len(text) > 500:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _sum(tree, script)


def _sum(node: ast.AST, script: Script) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 10**12:
        return node.value
    if isinstance(node, ast.Name):
        known = str(script.variables.get(node.id, ""))
        return int(known) if known.isdecimal() and len(known) < 13 else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _sum(node.operand, script)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _sum(node.left, script), _sum(node.right, script)
        if left is None or right is None or (isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)) and right == 0):
            return None
        result = _OPERATORS[type(node.op)](left, right)
        return result if abs(result) < 10**15 else None
    return None
