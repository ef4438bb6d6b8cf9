"""Plans from strangers: the encodings that are read, and files that are refused before they can do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.plans import element, group, plan, sampler
from powerband.base.errors import UsageError
from powerband.jmx import reader
from powerband.jmx.reader import parse_plan, read_plan

WHOLE = plan(group(sampler(name="주문 ✓")))


def test_the_tree_knows_paths_lines_and_properties() -> None:
    root = parse_plan(WHOLE.encode(), "plan.jmx")
    request = list(root.walk())[-1]
    assert request.full_path == "Test Plan > Users > 주문 ✓"
    assert request.kind == "HTTPSamplerProxy"
    assert WHOLE.splitlines()[request.line - 1].startswith("<hashTree><HTTPSamplerProxy")
    assert request.text_of("HTTPSampler.path") == "/"
    assert root.properties[0].items[0].name == "Arguments.arguments"


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", "UTF-8"),
        ("utf-8-sig", "UTF-8"),
        ("utf-16", "UTF-16"),
        ("utf-32", "UTF-32"),
        ("euc-kr", "EUC-KR"),
    ],
)
def test_encodings(encoding: str, declared: str) -> None:
    text = plan(group(sampler(name="주문"))).replace("UTF-8", declared)
    assert list(parse_plan(text.encode(encoding), "plan.jmx").walk())[-1].name == "주문"


def test_classes_of_others_keep_their_package() -> None:
    text = plan(
        element("org.apache.jmeter.timers.ConstantTimer", "a"), element("kg.apc.jmeter.timers.ConstantTimer", "b")
    )
    kinds = [child.kind for child in parse_plan(text.encode(), "plan.jmx").children]
    assert kinds == ["ConstantTimer", "kg.apc.jmeter.timers.ConstantTimer"]


def test_numbers_that_name_themselves_inside() -> None:
    text = plan(element("ConstantThroughputTimer", "t", throughput=60.5))
    assert parse_plan(text.encode(), "plan.jmx").children[0].text_of("throughput") == "60.5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "plan.jmx:1: not valid XML: no element found"),
        ("<a", "plan.jmx:1: not valid XML: unclosed token"),
        ("<html/>", "no JMeter test plan: it begins with <html>"),
        ("<jmeterTestPlan><hashTree/></jmeterTestPlan>", "there is no Test Plan element"),
        (
            "<jmeterTestPlan><hashTree><hashTree/></hashTree></jmeterTestPlan>",
            "plan.jmx:1: a hashTree that belongs to no",
        ),
        ("<jmeterTestPlan><hashTree><testelement/></hashTree></jmeterTestPlan>", "written by a JMeter before 2.1"),
        ('<?xml version="1.0" encoding="x-nothing"?><a/>', "the encoding 'x-nothing' is not known here"),
        ('<?xml version="1.0" encoding="rot13"?><a/>', "the encoding 'rot13' is not known here"),
        ("<!DOCTYPE a><a/>", "declares a document type"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares a document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "declares a document type"),
        ("<a>&b;</a>", "plan.jmx:1: not valid XML: undefined entity"),
        ("<a>" * 5000, "more deeply nested"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_plan(text.encode(), "plan.jmx")
    assert said in str(refused.value)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(UsageError, match="is not text in the encoding utf-8"):
        parse_plan(b"<a>\xff</a>", "plan.jmx")


def test_the_size_of_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BYTES_MAX", 1000)
    (tmp_path / "big.jmx").write_text(plan(sampler()) + " " * 1000)
    with pytest.raises(UsageError, match="larger than"):
        read_plan(tmp_path / "big.jmx")
    with pytest.raises(UsageError, match="cannot read"):
        read_plan(tmp_path / "none.jmx")
    with pytest.raises(UsageError, match="cannot read"):
        read_plan(tmp_path)


def test_the_number_of_elements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "NODES_MAX", 50)
    with pytest.raises(UsageError, match="more elements"):
        parse_plan(plan(*(sampler() for _ in range(10))).encode(), "plan.jmx")


@pytest.mark.parametrize("encoding", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "utf-7", "hex"])
def test_an_encoding_that_is_slow_or_none_is_refused(encoding: str) -> None:
    text = f"<?xml version='1.0' encoding='{encoding}'?><a>{'b-' * 200_000}</a>"
    with pytest.raises(UsageError, match=rf"plan.jmx: the encoding '{encoding}' is not known here"):
        parse_plan(text.encode(), "plan.jmx")


def test_names_within_names_are_bounded() -> None:
    nested = "<jmeterTestPlan><hashTree>" + f"<x testname='{'n' * 500}'/><hashTree>" * 5
    with pytest.raises(UsageError, match="its name and those around it are longer"):
        parse_plan((nested + "</hashTree>" * 6 + "</jmeterTestPlan>").encode(), "plan.jmx")
