"""CSV Data Set: rows as JMeter reads them, written out as the steps of a scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.plans import Value, converted, data, element, group, plan, sampler, variables
from powerband.jmx.converted import Conversion
from powerband.jmx.elements import data as module
from powerband.jmx.plan_findings import ImportRefused

ASKED = sampler(path="/${a}", query={"b": "${b}"})


def made(
    folder: Path, text: str | bytes, names: str = "a,b", users: str = "1", loops: str = "-1", **more: Value
) -> Conversion:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "rows.csv").write_bytes(content)
    return converted(plan(group(data("rows.csv", names, **more), ASKED, users=users, loops=loops)), folder=folder)


def paths(conversion: Conversion) -> list[str]:
    return [step.request.path for step in conversion.steps]


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        ("1,2\n3,4\n", {}, ["/1?b=2", "/3?b=4"]),
        ("1,2\r\n3,4", {}, ["/1?b=2", "/3?b=4"]),
        ("\ufeff1,2\n", {}, ["/1?b=2"]),
        ("1,2,5\n", {}, ["/1?b=2"]),
        ("1,\n", {}, ["/1?b="]),
        ('1,"2"\n', {}, ["/1?b=%222%22"]),
        ('1,"2,""x"""\n', {"quotedData": True}, ["/1?b=2%2C%22x%22"]),
        ('1,"2\n3"\r\n4,5', {"quotedData": True}, ["/1?b=2%0A3", "/4?b=5"]),
        ("1\t2\n", {"delimiter": "\\t"}, ["/1?b=2"]),
        ("1;2\n", {"delimiter": ";"}, ["/1?b=2"]),
        ("x,y\n1,2\n", {"ignoreFirstLine": True}, ["/1?b=2"]),
        ("b, a\n1,2\n", {"names": ""}, ["/2?b=1"]),
        ("é,2\n".encode("latin-1"), {"fileEncoding": "ISO-8859-1", "names": "b,a"}, ["/2?b=%C3%A9"]),
    ],
)
def test_rows(tmp_path: Path, text: str | bytes, more: dict[str, str], expected: list[str]) -> None:
    assert paths(made(tmp_path, text, **more)) == expected


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("1\n", {}, "line 1 has 1 of 2 values"),
        ("1,2\n\n3,4\n", {}, "line 2 has 0 of 2 values"),
        ("", {}, "has no rows"),
        ('1,"2\n', {"quotedData": True}, "line 1 has a quoted value that does not end"),
        ('1,"2"x\n', {"quotedData": True}, "line 1 has a quoted value that does not end"),
        ('1,2"\n', {"quotedData": True}, "line 1 has a quote within a value"),
        (b"\xff,2\n", {}, "cannot be read"),
        ("1,2\0\n", {}, "a NUL byte"),
        ("1,2\n", {"fileEncoding": "klingon"}, "cannot be read"),
        ("1,2\n", {"recycle": False}, "its variables become <EOF>"),
        ("1,2\n", {"recycle": False, "stopThread": True, "users": "2"}, "2 users share its rows"),
        ("1,2\n" * 1001, {}, "more than 1000 steps"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, more: dict[str, str], why: str) -> None:
    with pytest.raises(ImportRefused) as error:
        made(tmp_path, text, **more)
    assert why in str(error.value)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportRefused, match="is not there, in the plan's folder"):
        converted(plan(group(data("none.csv", "a,b"), ASKED)), folder=tmp_path)
    monkeypatch.setattr(module, "BYTES_MAX", 3)
    with pytest.raises(ImportRefused, match="it is larger than"):
        made(tmp_path, "1,2\n")


def test_rows_end_a_user_where_they_are_not_begun_again(tmp_path: Path) -> None:
    own: dict[str, Value] = {"recycle": False, "stopThread": True, "shareMode": "shareMode.thread"}
    assert made(tmp_path, "1,2\n3,4\n", users="5", **own).load.requests_per_user == 2
    assert made(tmp_path, "1,2\n3,4\n", loops="7", **own).load.requests_per_user == 2
    few = made(tmp_path, "1,2\n3,4\n5,6\n", loops="2", **own)
    assert (few.load.requests_per_user, paths(few)) == (2, ["/1?b=2", "/3?b=4"])


def test_rows_that_threads_share_are_told_of(tmp_path: Path) -> None:
    shared = "All threads of JMeter share the rows"
    assert any(shared in note for note in made(tmp_path, "1,2\n", users="2").notes)
    assert not any(shared in note for note in made(tmp_path, "1,2\n", users="1").notes)
    assert not any(shared in note for note in made(tmp_path, "1,2\n", users="2", shareMode="shareMode.thread").notes)


def test_rows_that_users_would_not_send_alike_are_refused(tmp_path: Path) -> None:
    """Two users who each loop once take both rows in JMeter; here both would send the first. In three loops each would
    send the first twice."""
    with pytest.raises(ImportRefused, match="2 users share its 2 rows, and with a loop count of 1"):
        made(tmp_path, "1,2\n3,4\n", users="2", loops="1")
    with pytest.raises(ImportRefused, match="loop count of 3 each would send the first rows more often"):
        made(tmp_path, "1,2\n3,4\n", users="2", loops="3")
    for loops in ("2", "4", "-1"):
        assert len(paths(made(tmp_path, "1,2\n3,4\n", users="2", loops=loops))) == 2
    assert made(tmp_path, "1,2\n3,4\n", loops="3").load.requests_per_user == 3
    own = made(tmp_path, "1,2\n3,4\n", users="2", loops="1", shareMode="shareMode.thread")
    assert paths(own) == ["/1?b=2"]


def test_two_files_go_on_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    (tmp_path / "b.csv").write_text("x\ny\nz\n")
    both = plan(data("b.csv", "b"), group(data("a.csv", "a"), ASKED))
    assert paths(converted(both, folder=tmp_path)) == ["/1?b=x", "/2?b=y", "/1?b=z", "/2?b=x", "/1?b=y", "/2?b=z"]


def test_rows_lie_over_user_variables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("row\n")
    over = plan(group(variables({"a": "own", "b": "kept"}), data("a.csv", "a"), ASKED))
    assert paths(converted(over, folder=tmp_path)) == ["/row?b=kept"]


def test_data_of_a_controller_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    inner = element("LoopController", "Twice", data("a.csv", "a,b"), ASKED, **{"LoopController.loops": "2"})
    with pytest.raises(ImportRefused, match="a row for each pass of 'Twice'"):
        converted(plan(group(inner)), folder=tmp_path)


@pytest.mark.parametrize(
    "name", ["../secret.csv", "SECRET", "link.csv", "folder/../../secret.csv", "linked/secret.csv"]
)
def test_only_what_lies_below_the_plan_is_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("1,2\n")
    home = tmp_path / "plans"
    (home / "folder").mkdir(parents=True)
    (home / "link.csv").symlink_to(secret)
    (home / "linked").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    wanted = name.replace("SECRET", str(secret))
    with pytest.raises(ImportRefused, match=r"lies outside of the plan's folder .*/plans, and only files below it"):
        converted(plan(group(data(wanted, "a,b"), ASKED)), folder=home)


def test_below_the_plan_links_and_whole_paths_may_lead_to_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("1,2\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "rows.csv")
    for name in ("data/rows.csv", "link.csv", str(tmp_path / "data" / "rows.csv")):
        assert paths(converted(plan(group(data(name, "a,b"), ASKED)), folder=tmp_path)) == ["/1?b=2"]


def test_of_very_many_rows_only_those_that_are_needed_are_kept(tmp_path: Path) -> None:
    assert paths(made(tmp_path, "1,2\n" * 200_000, loops="2")) == ["/1?b=2", "/1?b=2"]


@pytest.mark.parametrize(
    "encoding", ["punycode", "idna", "unicode_escape", "utf-7", "rot13", "zlib", "x" * 9999, "a b"]
)
def test_only_usual_encodings_are_decoded(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(ImportRefused, match="is not known here: save the file as UTF-8"):
        made(tmp_path, "1,2\n", fileEncoding=encoding)
