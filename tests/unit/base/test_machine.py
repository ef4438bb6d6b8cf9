from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from fakes.needs import without
from powerband.base import machine
from powerband.base.errors import MeasurementError, UserInterruptError
from powerband.base.machine import ASSUMED_SD, Noise, cache_folder, known_noise, remember_noise


def kept(cache: Path) -> Path:
    (file,) = (cache / "powerband").iterdir()
    return file


def test_what_nobody_measured_is_assumed_and_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert known_noise() == Noise(ASSUMED_SD)
    assert str(known_noise()) == "equal trials differ by 2.0 % (assumed; `powerband doctor --pilot` measures it)"


def test_what_was_measured_is_remembered_with_its_day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert remember_noise(0.05) and remember_noise(0.013)
    found = known_noise()
    assert found.sd == 0.013 and found.measured_on is not None
    assert str(found) == f"equal trials differ by 1.3 % (measured here on {found.measured_on})"
    assert kept(tmp_path).name.startswith("noise-")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"sd": "x", "measured_on": "2026"}', '{"sd": -1, "measured_on": "2026"}',
             '{"sd": NaN, "measured_on": "2026"}']
)  # fmt: skip
def test_a_file_that_is_spoilt_counts_as_none(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember_noise(0.05)
    kept(tmp_path).write_text(text)
    assert known_noise() == Noise(ASSUMED_SD)


def test_each_machine_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember_noise(0.05)
    monkeypatch.setattr("powerband.base.machine._machine", lambda: "another")
    assert known_noise().measured_on is None


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert not remember_noise(0.05)
    assert known_noise() == Noise(ASSUMED_SD)


def test_a_relative_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert remember_noise(0.04)
    assert json.loads(kept(tmp_path / ".cache").read_text())["sd"] == 0.04


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shared temporary folder of a user without a home."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_without_a_home_there_is_a_place_of_ones_own(shared: Path) -> None:
    assert cache_folder() == cache_folder() == shared / f"powerband-{os.getuid()}"
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700


@pytest.mark.parametrize("how", ["linked", "writable", "owned"])
def test_what_somebody_else_may_have_put_there_is_not_trusted(how: str, shared: Path, tmp_path: Path) -> None:
    """Files in the cache are executed, so a folder that another user may have made is refused."""
    place = shared / f"powerband-{os.getuid()}"
    if how == "linked":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
        place.chmod(0o777 if how == "writable" else 0o700)
    if how == "owned":
        if os.getuid() != 0:
            without("only root can give a folder to another user")
        os.chown(place, 65534, 65534)
    with pytest.raises(MeasurementError, match="not trusted"):
        cache_folder()
    assert known_noise() == Noise(ASSUMED_SD) and not remember_noise(0.04)


def test_who_waits_for_another_process_is_told_and_may_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LOOK_S", 0.0)
    notes: list[str] = []
    asked = iter([*[False] * 40, True])
    held = machine.alone_in_cache(tmp_path / "x", "it is kept there")
    waits = machine.alone_in_cache(tmp_path / "x", "it is kept there", lambda: next(asked), notes.append)
    with held, pytest.raises(UserInterruptError, match="stopped while another powerband fills"), waits:
        pass
    assert len(notes) == 1 and "waits for it" in notes[0]


def test_an_error_of_the_work_in_the_cache_is_not_taken_for_one_of_the_cache(tmp_path: Path) -> None:
    with pytest.raises(ChildProcessError), machine.alone_in_cache(tmp_path / "x", "it is kept there"):
        raise ChildProcessError
