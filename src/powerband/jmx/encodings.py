"""Decodes files of strangers. In: bytes and the name of an encoding, as a test plan writes it. Out: text.

Only text encodings whose decoders take linear time are known: `punycode` and other decoders of Python take longer, and
some of Python's encodings are not for text at all.
"""

from __future__ import annotations

import codecs

KNOWN = frozenset(
    [
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "ascii"),
        *(f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))),
        *(f"cp{page}" for page in (437, 850, 852, 866, 874, 932, 949, 950, *range(1250, 1259))),
        *("koi8-r", "koi8-u", "mac-roman", "shift_jis", "euc_jp", "euc_kr", "gb2312", "gbk", "gb18030", "big5"),
    ]
)


def codec_named(name: str) -> str:
    """Python's name of an encoding. Raises LookupError with a sentence for one that is not known."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):  # a name with a NUL, or one that is no text
        found = ""
    if found not in KNOWN:
        raise LookupError(f"the encoding {name[:40]!r} is not known here: save the file as UTF-8")
    return found


def decoded(data: bytes, name: str) -> str:
    """Returns the text. Raises LookupError for an unknown encoding, ValueError for bytes that are not in it."""
    return data.decode(codec_named(name))
