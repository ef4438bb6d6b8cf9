"""The pictures of the docs: each is made by the script, from what is kept of a run, and keeps the colours of the
page."""

from __future__ import annotations

import io

from PIL import Image
from scripts import beside
from scripts.gallery import IMAGES, SHOTS, _small
from scripts.keep import DATA
from scripts.whole import RUNS

from powerband.files.library import experiment_names


def test_every_picture_is_made_by_the_script() -> None:
    names = [shot.name for shot in SHOTS]
    assert len(names) == len(set(names))
    assert {path.stem for path in IMAGES.glob("*.png")} <= {*names, beside.FIGURE.stem}


def test_every_picture_of_a_report_has_what_it_is_made_of() -> None:
    for shot in SHOTS:
        match shot.page:
            case "report":
                assert (RUNS / f"{shot.run}.tar.xz").is_file(), shot.name
            case "kept":
                assert list(DATA.glob(f"{shot.run}-[0-9]*")), shot.name
            case _:
                assert shot.page == "live" and shot.run in experiment_names()


def test_a_picture_keeps_its_colours() -> None:
    """The picture has many shades, as at the edges of letters, and few colours with a meaning, one of them on a thin
    line only."""
    image = Image.new("RGB", (400, 300), (252, 252, 250))
    for x in range(400):
        for y in range(100, 200):
            image.putpixel((x, y), (x % 256, (x + y) % 256, y))
        image.putpixel((x, 250), (180, 90, 0))
    raw = io.BytesIO()
    image.save(raw, "PNG")
    small = Image.open(io.BytesIO(_small(raw.getvalue()))).convert("RGB")
    assert small.size == image.size
    assert small.getpixel((10, 10)) == (252, 252, 250)
    assert small.getpixel((10, 250)) == (180, 90, 0)
