"""One HTTP Request as it goes over the wire. The expected lines are what JMeter 5.6.3 sends (tests/e2e/test_import.py
asks it)."""

from __future__ import annotations

import pytest

from fakes.plans import argument, converted, defaults, element, group, headers, plan, sampler, variables
from powerband.jmx.elements.http import Request, RequestTarget
from powerband.jmx.plan_findings import ImportRefused

FORM = ("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
TEXT = ("Content-Type", "text/plain; charset=UTF-8")


def request(*children: str) -> Request:
    """The single request of a plan."""
    (step,) = converted(plan(group(*children))).steps
    return step.request


def refused(*children: str) -> str:
    with pytest.raises(ImportRefused) as error:
        converted(plan(group(*children)))
    return str(error.value)


def test_a_get() -> None:
    assert request(sampler(path="/a", query={"q": "tea & cups~*", "소": "값"})) == Request(
        target=RequestTarget("http", "127.0.0.1", 8080),
        method="GET",
        path="/a?q=tea+%26+cups%7E*&%EC%86%8C=%EA%B0%92",
        headers=(),
        body=None,
        keep_alive=True,
        follows=False,
        timeout_ms=None,
        connect_timeout_ms=None,
    )


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", "/"),
        ("a", "/a"),
        ("/a b", "/a%20b"),
        ("/a?x=1", "/a?x=1&q=1"),
        ("//a//b/", "/a/b/"),
        ("//%7Ea%2fb/%ec/", "/~a%2Fb/%EF%BF%BD/"),
        ("/%7Ea%2fb/%ec", "/%7Ea%2fb/%ec"),
        ("/값/é?é", "/%EA%B0%92/%C3%A9?%C3%A9&q=1"),
        ("/a;v=1/@b+c", "/a;v=1/@b+c"),
        ("http://127.0.0.1:8080/whole?y=2#part", "/whole?y=2"),
    ],
)
def test_paths(path: str, line: str) -> None:
    query = {} if "?" not in path or "whole" in path else {"q": "1"}
    assert request(sampler(path=path, query=query)).path == line


def test_parameters_without_encoding_and_without_names() -> None:
    listed = [argument("a", "x%20y", encodes=False), argument("", "left out"), argument("b", "")]
    own = {"HTTPsampler.Arguments": {"Arguments.arguments": listed}}
    assert request(sampler(**own)).path == "/?a=x%20y&b="
    posted = request(sampler(method="POST", **own))
    assert (posted.path, posted.body, posted.headers) == ("/", "a=x+y&b=", (FORM,))


def test_bodies() -> None:
    raw = request(sampler(method="PUT", body='{"a": "é"}'))
    assert (raw.body, raw.headers) == ('{"a": "é"}', (TEXT,))
    typed = request(sampler(headers(("content-type", "application/json")), method="POST", body="{}"))
    assert typed.headers == (("content-type", "application/json"),)
    both = request(sampler(method="DELETE", query={"a": "1"}))
    assert (both.path, both.body, both.headers) == ("/?a=1", "a=1", (FORM,))
    assert request(sampler(method="POST")).headers == (FORM,)
    assert request(sampler(method="GET", body="searched")).body == "searched"
    head = request(sampler(method="HEAD", query={"a": "1"}))
    assert (head.path, head.body) == ("/", None)


def test_what_is_empty_the_nearest_defaults_fill() -> None:
    outer = defaults(("k", "outer"), **{"HTTPSampler.path": "/outer", "HTTPSampler.response_timeout": "2000"})
    inner = defaults(("k", "inner"), **{"HTTPSampler.path": "/inner"})
    bare = sampler(path="", query={"own": "1"})
    simple = element("GenericController", "Part", inner, bare)
    made = request(outer, simple)
    assert made.path == "/inner?own=1&k=inner&k=outer"
    assert made.timeout_ms == 2000


def test_of_one_header_the_nearest_counts() -> None:
    outer = headers(("Accept", "outer"), ("X-A", "1"), ("Content-Length", "3"))
    inner = headers(("accept", "inner"), ("X-B", "1"), ("X-B", "2"))
    assert request(outer, sampler(inner)).headers == (("accept", "inner"), ("X-B", "1"), ("X-B", "2"), ("X-A", "1"))


@pytest.mark.parametrize(("value", "sent"), [("shop", "shop:8080"), ("shop:80", "shop"), ("shop:81", "shop:81")])
def test_a_host_header_gets_the_port(value: str, sent: str) -> None:
    assert request(sampler(headers(("Host", value)))).headers == (("Host", sent),)


def test_variables_stand_everywhere() -> None:
    given = variables({"host": "localhost", "port": "81", "v": "x y"})
    asked = sampler(
        headers(("X-V", "${v}")), path="/${v}", query={"q": "${v}"},
        **{"HTTPSampler.domain": "${host}", "HTTPSampler.port": "${port}"},
    )  # fmt: skip
    made = request(given, asked)
    assert (made.target, made.path) == (RequestTarget("http", "localhost", 81), "/x%20y?q=x+y")
    assert made.headers == (("X-V", "x y"),)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (sampler(path="/{id}"), "a character that a URL cannot"),
        (sampler(path="/e\u0301"), "a character that a URL cannot"),
        (sampler(path="/a\u2028"), "a character that a URL cannot"),
        (sampler(path="/a/../b"), "goes up"),
        (sampler(path="http://u:p@127.0.0.1/"), "with a user in it"),
        (sampler(path="http://[::1/"), "is no URL"),
        (sampler(method="get"), "its method is 'get'"),
        (sampler(method="CONNECT"), "its method is 'CONNECT'"),
        (sampler(**{"HTTPSampler.domain": ""}), "it names no server"),
        (sampler(**{"HTTPSampler.domain": "a b"}), "its server name is 'a b'"),
        (sampler(**{"HTTPSampler.port": "99999"}), "its port is '99999'"),
        (sampler(**{"HTTPSampler.protocol": "file"}), "its protocol is 'file'"),
        (sampler(**{"HTTPSampler.image_parser": True}), "downloads what the page embeds"),
        (sampler(**{"HTTPSampler.proxyHost": "p"}), "goes through a proxy"),
        (sampler(**{"HTTPSampler.ipSource": "127.0.0.2"}), "chooses the address"),
        (sampler(**{"HTTPSampler.DO_MULTIPART_POST": True}), "multipart/form-data"),
        (sampler(**{"HTTPSampler.md5": True}), "a checksum"),
        (sampler(**{"HTTPSampler.of_the_future": "1"}), "HTTPSampler.of_the_future is '1', which is not known"),
        (sampler(**{"HTTPsampler.Files": {"HTTPFileArgs.files": [{"File.path": "x"}]}}), "uploads files"),
        (sampler(**{"HTTPSampler.contentEncoding": "nonsense"}), "content encoding 'nonsense' is not known"),
        (sampler(query={"q": "소"}, **{"HTTPSampler.contentEncoding": "US-ASCII"}), "cannot be written in"),
        (sampler(**{"HTTPSampler.response_timeout": "soon"}), "response_timeout is 'soon'"),
        (sampler(body="${__UUID}", method="POST"), "gives another value each time"),
        (sampler(headers(("Bad Name", "1"))), "has a header named 'Bad Name'"),
        (sampler(headers(("A", "소"))), "a letter beyond ASCII"),
        (sampler(headers(("A", "Bearer {env:API_TOKEN}"))), "it would send a variable of your environment"),
        (sampler(headers(("Transfer-Encoding", "chunked"))), "which the body decides"),
    ],
)  # fmt: skip
def test_what_is_refused(asked: str, why: str) -> None:
    said = refused(asked)
    assert why in said
    assert "Test Plan > Users > Request" in said


def test_a_percent_that_is_no_escape_is_refused_where_it_would_be_decoded() -> None:
    listed = {"HTTPsampler.Arguments": {"Arguments.arguments": [argument("a", "5%", encodes=False)]}}
    assert "a % that is no escape" in refused(sampler(method="POST", **listed))


def test_parameters_of_defaults_beside_a_body_are_refused() -> None:
    assert "a body of its own, and parameters" in refused(defaults(("k", "v")), sampler(method="POST", body="x"))


def test_a_latin_body_is_refused_only_where_it_matters() -> None:
    latin = {"HTTPSampler.contentEncoding": "ISO-8859-1"}
    made = request(sampler(method="POST", body="plain", **latin))
    assert (made.body, made.headers) == ("plain", (("Content-Type", "text/plain; charset=ISO-8859-1"),))
    assert "is written in iso8859-1" in refused(sampler(method="POST", body="é", **latin))
    assert request(sampler(query={"q": "é"}, **latin)).path == "/?q=%E9"
