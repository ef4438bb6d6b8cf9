"""A hook of `make site`: links that lead out of docs/, to the source, become text, since a site holds the docs alone.

In: each page's Markdown and where it lies. Out: the same without such links. That all links are right: a test."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


_FOREIGN = re.compile(r'<script src="https?://[^"]*"></script>')


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs calls it by this name."""
    folder = posixpath.dirname(page.file.src_uri)
    return _LINK.sub(lambda found: found[0] if _is_inside(folder, found[2]) else found[1], markdown)


def _is_inside(folder: str, target: str) -> bool:
    """Whether a link of a page in `folder` stays within the site's pages and pictures."""
    if re.match(r"[a-z]+:", target):
        return True
    there = posixpath.normpath(posixpath.join(folder, target))
    return not there.startswith("..") and posixpath.splitext(there)[1] in (".md", ".png", ".svg")


def on_post_page(output: str, **_: Any) -> str:
    """Without scripts of other hosts: nothing is loaded from elsewhere, and search needs the pages to be served."""
    return _FOREIGN.sub("", output)


def on_post_template(output: str, **_: Any) -> str:
    """The page for what is not there."""
    return _FOREIGN.sub("", output)
