"""The facts of a plan before it runs: thread groups, hosts, transactions; and files that are no plans."""

from __future__ import annotations

from itertools import starmap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from powerband.loads.jmeter.plan_file import Plan, Transaction, check_hosts, read_plan

EXAMPLE = Path(__file__).parents[3] / "examples" / "jmeter" / "plan.jmx"
GROUP = '<ThreadGroup testname="g"/>'


def plan(tmp_path: Path, within: str, group: str = GROUP, variables: str = "") -> Plan:
    file = tmp_path / "plan.jmx"
    file.write_text(
        f"<jmeterTestPlan><hashTree><TestPlan><elementProp><collectionProp>{variables}</collectionProp></elementProp>"
        f"</TestPlan><hashTree>{group}<hashTree>{within}</hashTree></hashTree></hashTree></jmeterTestPlan>"
    )
    return read_plan(file)


def sampler(key: str, value: str, more: str = "") -> str:
    return (
        f'<HTTPSamplerProxy testname="Home"{more}><stringProp name="{key}">{value}</stringProp></HTTPSamplerProxy>'
        "<hashTree/>"
    )


def variable(name: str, value: str) -> str:
    return (
        f'<elementProp elementType="Argument"><stringProp name="Argument.name">{name}</stringProp>'
        f'<stringProp name="Argument.value">{value}</stringProp></elementProp>'
    )


def test_the_example() -> None:
    made = read_plan(EXAMPLE)
    assert made.thread_groups == 1
    assert made.variables == {"server": "${__P(host,127.0.0.1)}"}
    assert [made.host(found, {}) for found in made.destinations] == ["127.0.0.1", None]
    assert [(each.name, each.alone) for each in made.transactions] == [("A visit", False)]
    check_hosts(made, {}, ())
    said = r"Where the server is goes to shop\.example, for which \$\{server\} stands with these load\.properties: shop"
    with pytest.raises(ValueError, match=said):
        check_hosts(made, {"host": "shop.example"}, ())
    check_hosts(made, {"host": "shop.example"}, ("shop.example",))
    with pytest.raises(ValueError, match=r"Front page goes to shop\.example, for which its path stands with these"):
        check_hosts(made, {"path": "http://shop.example/x?token=y"}, ())


def test_an_empty_property_is_one_that_is_not_given(tmp_path: Path) -> None:
    made = plan(tmp_path, sampler("HTTPSampler.domain", "${__P(where,shop.example)}"))
    with pytest.raises(ValueError, match="--allow-host"):
        check_hosts(made, {"where": ""}, ())


@pytest.mark.parametrize(
    ("key", "text", "host"),
    [
        ("HTTPSampler.domain", "shop.example", "shop.example"),
        ("HTTPSampler.domain", "${__P(where)}", "1"),
        ("HTTPSampler.domain", "${__P(where,shop.example)}", "shop.example"),
        ("HTTPSampler.domain", "${__property(where,,shop.example)}", "shop.example"),
        ("HTTPSampler.domain", "${server}", "shop.example"),
        ("HTTPSampler.domain", "${other}", None),
        ("HTTPSampler.domain", "${__time()}", None),
        ("HTTPSampler.domain", "::1", "::1"),
        ("HTTPSampler.path", "https://shop.example:8443/x?y=${z}", "shop.example"),
        ("HTTPSampler.path", "https://${server}:8443/x?y=${z}", "shop.example"),
        ("HTTPSampler.path", "http${s}://${__P(where,shop.example)}?y=${z}", "shop.example"),
        ("HTTPSampler.path", "${base}/x?y=${z}", "shop.example"),
        ("HTTPSampler.path", "${other}/x", None),
        ("HTTPSampler.path", "https://${__groovy(a/b)}/x", None),
        ("HTTPSampler.proxyHost", "proxy.example", "proxy.example"),
        ("TCPSampler.server", "10.0.0.7", "10.0.0.7"),
    ],
)
def test_hosts(tmp_path: Path, key: str, text: str, host: str | None) -> None:
    known = {"server": "${name}", "name": "shop.example", "s": "s", "base": "https://shop.example:8443"}
    made = plan(tmp_path, sampler(key, text), variables="".join(starmap(variable, known.items())))
    (found,) = made.destinations
    assert found.element == "Home"
    assert made.host(found, {}) == host
    if host in ("::1", None):
        check_hosts(made, {}, ())
    else:
        with pytest.raises(ValueError, match="--allow-host"):
            check_hosts(made, {}, ())
        check_hosts(made, {}, (str(host),))


def test_what_is_disabled_is_not_there(tmp_path: Path) -> None:
    off = '<ThreadGroup enabled="false"/><hashTree>' + sampler("HTTPSampler.domain", "shop.example") + "</hashTree>"
    made = plan(tmp_path, sampler("HTTPSampler.domain", "a.example", ' enabled="false"') + off)
    assert made.destinations == () and made.thread_groups == 1


def test_groups_that_run_before_and_after_the_load(tmp_path: Path) -> None:
    apart = "".join(f'<{tag}ThreadGroup testname="{tag}"/><hashTree/>' for tag in ("Setup", "Post"))
    same = '<SetupThreadGroup testname="g"/><hashTree/>'
    within = '<HTTPSamplerProxy testname="Setup"/><hashTree/><LoopController testname="Post"/><hashTree/>'
    assert plan(tmp_path, within, f"{apart}{same}{GROUP}").groups_apart == {"Setup", "Post"}


def test_paths_are_no_hosts(tmp_path: Path) -> None:
    made = plan(tmp_path, sampler("HTTPSampler.path", "/http://x") + sampler("HTTPSampler.path", "http://${x}/"))
    assert [made.host(found, {}) for found in made.destinations] == [None]
    check_hosts(made, {}, ())


def test_a_transaction_stands_alone_where_its_name_says_so(tmp_path: Path) -> None:
    def controller(name: str, parent: str) -> str:
        prop = f'<boolProp name="TransactionController.parent">{parent}</boolProp>'
        return f'<TransactionController testname="{name}">{prop}</TransactionController><hashTree/>'

    made = plan(
        tmp_path, controller("Buy ${item} (now)", "true") + controller("Look", "false") + controller("Look", "true")
    )
    assert made.stands_alone("Buy a book (now)")
    assert not made.stands_alone("Buy a book now")
    assert not made.stands_alone("Look")
    assert not made.stands_alone("from elsewhere")
    labels = ("Buy a book (now)", "Buy a book now", "Look", "from elsewhere")
    assert [made.replaces_samples(label) for label in labels] == [True, False, True, False]


@pytest.mark.parametrize(
    ("within", "reads"),
    [
        (sampler("HTTPSampler.port", "${__P( users ,8)}"), True),
        (sampler("HTTPSampler.port", "${__property(users)}"), True),
        ("<JSR223Sampler><stringProp name='script'>props.get('users')</stringProp></JSR223Sampler><hashTree/>", True),
        ("<JSR223Sampler><stringProp name='script'>props.users as int</stringProp></JSR223Sampler><hashTree/>", True),
        (sampler("HTTPSampler.port", "${__groovy(props.users)}"), True),
        (sampler("HTTPSampler.port", "${__groovy(props.users2)}"), False),
        ("<JSR223Sampler><stringProp name='filename'>a.groovy</stringProp></JSR223Sampler><hashTree/>", True),
        ("<JSR223Sampler><stringProp name='filename'></stringProp></JSR223Sampler><hashTree/>", False),
        ("<CSVDataSet><stringProp name='filename'>a.csv</stringProp></CSVDataSet><hashTree/>", False),
        ("<IncludeController/><hashTree/>", True),
        (sampler("HTTPSampler.port", "${__P(users)}", ' enabled="false"'), False),
        (sampler("HTTPSampler.path", "/users?n=${__P(allusers,users of all)}"), False),
    ],
)
def test_what_a_plan_reads(tmp_path: Path, within: str, *, reads: bool) -> None:
    made = plan(tmp_path, within)
    assert made.reads("users") is reads
    assert made.reads("timer.factor") and made.reads("search_paths")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<jmeterTestPlan><hashTree></jmeterTestPlan>", "no valid XML.*line 1"),
        ("", "no valid XML"),
        ("not xml", "no valid XML"),
        ("<project/>", "begins with <project>"),
        ("<jmeterTestPlan><hashTree/></jmeterTestPlan>", "no thread group that is enabled"),
        ('<?xml version="1.0" encoding="klingon"?><jmeterTestPlan/>', "cannot be read as XML|no valid XML"),
    ],
)
def test_what_is_no_plan_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plan.jmx"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_plan(file)
    with pytest.raises(ValueError, match="cannot read"):
        read_plan(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.data())
def test_a_plan_that_is_cut_anywhere_is_told(tmp_path: Path, data: st.DataObject) -> None:
    whole = EXAMPLE.read_bytes().rstrip()
    file = tmp_path / "cut.jmx"
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match="XML"):
        read_plan(file)


def test_a_plan_of_great_depth(tmp_path: Path) -> None:
    deep = "<x/><hashTree>" * 5_000 + "</hashTree>" * 5_000
    assert plan(tmp_path, deep).thread_groups == 1


@pytest.mark.parametrize(
    ("name", "label", "is_called"),
    [
        ("a", "a", True), ("a", "ab", False), ("a${x}", "a", True), ("a${x}", "ba", False), ("${x}a", "bba", True),
        ("a${x}a", "a", False), ("a${x}a", "aa", True), ("a${x}b${y}c", "axbxc", True), ("a${x}b${y}c", "axc", False),
        ("${x}b${y}b${z}", "bb", True), ("${x}b${y}b${z}", "ab", False),
        ("${x}" + "a${x}" * 30 + "b", "a" * 3000, False),
    ],
)  # fmt: skip
def test_a_name_with_variables_calls_labels(name: str, label: str, is_called: bool) -> None:
    assert Transaction(name, alone=True).is_called(label) is is_called


@pytest.mark.parametrize(
    "text", ["${__P(" + " " * 100_000, "${__property(" + " " * 100_000 + "x" * 9, "${__P(" * 20_000, "${v}"]
)
def test_no_text_of_a_plan_takes_long(text: str) -> None:
    assert Plan(1, (), (), {"v": "${v}" * 50}).value(text, {}) is None
