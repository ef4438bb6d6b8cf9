"""The pictures of the docs: each is made by the script, from an existing experiment, and keeps the colours of the
page."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image
from scripts import beside
from scripts.gallery import IMAGES, SHOTS, SOURCES, Source, _is_finished_run, _small

from powerband.files.library import experiment_names


def test_every_picture_is_made_by_the_script() -> None:
    names = [shot.name for shot in SHOTS]
    assert len(names) == len(set(names))
    assert {path.stem for path in IMAGES.glob("*.png")} <= {*names, beside.FIGURE.stem}
    assert {shot.run for shot in SHOTS} <= {*experiment_names(), *SOURCES}


def run_directory(folder: Path, name: str, statuses: list[str], planned: int) -> Path:
    path = folder / name
    (path / "trials").mkdir(parents=True)
    (path / "plan.jsonl").write_text("{}\n" * planned)
    for number, status in enumerate(statuses, start=1):
        trial = path / "trials" / f"{number:04d}"
        trial.mkdir()
        (trial / "record.json").write_text(json.dumps({"status": status}))
    return path


def test_only_a_finished_run_of_the_experiment_is_taken(tmp_path: Path) -> None:
    done = run_directory(tmp_path, "20260101-120000-quickstart", ["measured"] * 4, planned=4)
    again = run_directory(tmp_path, "20260101-120000-quickstart-2", ["measured"] * 3 + ["failed"], planned=4)
    stopped = run_directory(tmp_path, "20260101-130000-quickstart", ["measured"], planned=4)
    other = run_directory(tmp_path, "20260101-120000-my-quickstart", ["measured"] * 4, planned=4)
    on_nodes = run_directory(tmp_path, "20260101-140000-quickstart", ["measured"] * 4, planned=4)
    (on_nodes / "nodes.json").write_text("{}")
    every = (done, again, stopped, other, on_nodes)
    assert [path for path in every if _is_finished_run(path, Source("quickstart", ()))] == [done, again]
    assert [path for path in every if _is_finished_run(path, Source("quickstart", (), on_nodes=True))] == [on_nodes]


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
