"""The subject from inside, as markup."""

from pathlib import Path

from fakes.trials import Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.threads import LabelTable, ThreadUse
from powerband.files.resolved import resolved_yaml
from powerband.report.html.inside import ROWS_SHOWN, inside_section
from powerband.report.html.page import InsideView
from powerband.report.html.report import write_report
from powerband.search.session import analyse_run
from powerband.store import RunDir


def test_threads_and_labels_are_told_and_escaped() -> None:
    threads = (ThreadUse("vert.x-eventloop-<0>", 0.5, 0.25, 1234.0),)
    labelled = LabelTable(("instance",), ("conns", "served_total"), ((("0",), (3.0, 12.5)), (("1",), (4.0, None))))
    text = inside_section([InsideView("instances=1", 3, threads, (labelled,))])
    assert "vert.x-eventloop-&lt;0&gt;" in text and "<td>50 %</td><td>25 %</td><td>1,234</td>" in text
    assert "served_total/s" in text and "<td>3</td><td>12.5</td>" in text and "<td>4</td><td>–</td>" in text
    assert "instances=1 (trial 3)" in text


def test_a_long_table_is_cut_and_says_so() -> None:
    rows = tuple(((str(i),), (1.0,)) for i in range(ROWS_SHOWN + 5))
    text = inside_section([InsideView("x=1", 1, (), (LabelTable(("i",), ("a",), rows),))])
    assert "and 5 more rows" in text and text.count("<tr>") == ROWS_SHOWN + 1


def test_nothing_known_is_no_section() -> None:
    assert inside_section([]) == ""


def test_what_a_damaged_file_leaves_out_is_told(tmp_path: Path) -> None:
    of = experiment({"threads": (1,)})
    run = RunDir.create(tmp_path, of.name, resolved_yaml(of), {})
    directory = run.trial(1)
    write_trial(directory, record_of(spec({"threads": 1}), Figures()), Figures())
    analysis = analyse_run(of, run)
    told = 'id="inside-title">From inside</h2><p class="lead">Not shown: the files of a trial are not as'
    assert told not in write_report(run, analysis).read_text()
    lines = directory.probe.read_text()
    directory.probe.write_text(lines.replace('"tree"', '"tr33"'))
    assert told in write_report(run, analysis).read_text()
