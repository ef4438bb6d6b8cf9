"""Makes texts from outside safe for GitHub's Markdown: whatever a name or a message contains, it stays text.

`prose` is for sentences, `code` for names. Neither can become markup, a link, an image, a mention of a user, or a
reference to an issue or a commit. Punctuation with a meaning is escaped. GitHub also scans the text after Markdown; a
zero-width space hides such patterns from it."""

from __future__ import annotations

import re

_SPACE = "\u200b"
_BLANK = re.compile(r"\s+")
# Invisible characters that no text needs: control characters, lone surrogates, changes of direction.
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_LOOKED_FOR = (
    (re.compile(r"@"), f"@{_SPACE}"),  # a user, an address
    (re.compile(r"#(?=\w)"), f"#{_SPACE}"),  # an issue
    (re.compile(r"\b(gh-)(?=\d)", re.IGNORECASE), rf"\1{_SPACE}"),
    (re.compile(r":(?=//)"), f":{_SPACE}"),  # a URL
    (re.compile(r"\b(www)\.", re.IGNORECASE), rf"\1{_SPACE}."),
    (re.compile(r":(?=[\w+-]+:)"), f":{_SPACE}"),  # an emoji by name
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)([0-9a-f])(?=[0-9a-f]{6,63}\b)"), rf"\1{_SPACE}"),  # a commit
)
_ENTITIES = {character: f"&#{ord(character)};" for character in "\\`|$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_ESCAPED = {character: f"\\{character}" for character in "*_[]~#!"}
_TABLE = str.maketrans({**_ENTITIES, **_ESCAPED, _SPACE: f"&#{ord(_SPACE)};"})
_AT_START = re.compile(r"^(?:([-+=])|(\d+)([.)]))")
_PLAIN_CODE = re.compile(r"[^`|\\]+")


def prose(text: str) -> str:
    """One line of text, safe in a paragraph, a list item or a table cell."""
    line = one_line(text)
    for pattern, replacement in _LOOKED_FOR:
        line = pattern.sub(replacement, line)
    safe = line.translate(_TABLE)
    # Characters that would begin a list or underline a heading.
    return _AT_START.sub(lambda found: f"{found[2] or ''}\\{found[1] or found[3]}", safe)


def code(text: str) -> str:
    """A name in code font; empty for an empty text. GitHub finds no references in it."""
    line = one_line(text)
    if not line:
        return ""
    if _PLAIN_CODE.fullmatch(line):
        return f"`{line}`"
    # A backtick, or in a table a bar with a backslash before it, would end the name.
    marked = line.replace("@", f"@{_SPACE}")
    return f"<code>{''.join(letter if letter.isalnum() else f'&#{ord(letter)};' for letter in marked)}</code>"


def block(text: str) -> str:
    """Lines of code between fences that none of them can close."""
    lines = [_UNSEEN.sub("\ufffd", line) for line in text.splitlines()] or [""]
    longest = max((len(found) for line in lines for found in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}sh", *lines, fence])


def one_line(text: str) -> str:
    """The text in one line: line breaks become spaces, invisible characters the replacement character."""
    return _BLANK.sub(" ", _UNSEEN.sub("\ufffd", text)).strip()
