"""Access to the live page: hosts, origins, tokens and methods; and the headers of every answer."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from fakes.asgi import Answered, asked
from powerband.live.guard import Access, Guard, access_for

TOKEN = "a-token-of-some-length"


def guarded(access: Access) -> ASGIApp:
    return Guard(PlainTextResponse("inside"), access)


LOCAL = guarded(access_for("127.0.0.1", 8420, None, "machine"))
OPEN = guarded(access_for("0.0.0.0", 8420, TOKEN, "Machine"))
KNOWN = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8420", "127.0.0.1", "localhost:8420", "LOCALHOST", "[::1]:8420", "localhost:9000"]
)
def test_this_machine_is_answered(host: str) -> None:
    assert asked(LOCAL, "/", host=host).text == "inside"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.7:8420", "",
     "127.0.0.1@evil.example", "localhost:notaport", "machine", "127.0.0.1/evil.example", "[::1", "0x7f.1",
     "localhost:8420:1"],
)  # fmt: skip
def test_a_name_that_only_points_here_is_not(host: str) -> None:
    refused = asked(LOCAL, "/", host=host)
    assert refused.status == 421 and "inside" not in refused.text


@pytest.mark.parametrize("host", ["machine:8420", "MACHINE", "192.0.2.7:8420", "[2001:db8::1]:8420", "localhost"])
def test_opened_to_others_addresses_and_its_own_name_are_answered(host: str) -> None:
    assert asked(OPEN, "/", host=host, headers=KNOWN).text == "inside"


def test_opened_to_others_foreign_names_are_still_refused() -> None:
    assert asked(OPEN, "/", host="evil.example", headers=KNOWN).status == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8420"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),  # another program of this machine
        ({"origin": "null"}, 403),  # a sandboxed page, such as a report
        ({"origin": "file://"}, 403),
        ({"origin": "http://["}, 403),  # not a valid URL
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),  # a followed link
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),  # an image or a script
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),  # another port
    ],
)
def test_a_page_of_another_origin_is_refused(headers: Mapping[str, str], status: int) -> None:
    assert asked(LOCAL, "/", headers=headers).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(method: str) -> None:
    refused = asked(LOCAL, "/", method=method)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("app", [LOCAL, OPEN])
@pytest.mark.parametrize("headers", [{}, KNOWN, {"origin": "http://evil.example"}])
def test_every_answer_carries_the_policy(app: ASGIApp, headers: Mapping[str, str]) -> None:
    answer = asked(app, "/", headers=headers)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_without_the_token_nothing_is_told() -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"cookie": "powerband-8420=wrong"},
                    {"cookie": "\x00;;=,"}):  # fmt: skip
        refused = asked(OPEN, "/runs/x/", headers=headers)
        assert refused.status == 401 and "inside" not in refused.text
        assert "a token is needed" in refused.text
    assert asked(OPEN, "/?token=wrong").status == 401


def test_the_token_moves_from_the_address_into_a_cookie() -> None:
    first: Answered = asked(OPEN, f"/compare?a=x&token={TOKEN}&b=y%26z", host="machine:8420")
    assert (first.status, first.headers["location"]) == (303, "/compare?a=x&b=y%26z")
    cookie = first.headers["set-cookie"]
    assert "httponly" in cookie.lower() and "samesite=lax" in cookie.lower(), "a link in a chat works"
    kept = cookie.split(";")[0]
    for sent in (kept, f'other[program]={{"a": 1}}; {kept}', f"{kept}; @=,; none", f"\x01; {kept}"):
        assert asked(OPEN, "/", headers={"cookie": sent}).text == "inside"


def test_the_address_after_the_token_stays_on_this_server() -> None:
    for path in ("//evil.example/", "/\\evil.example/", "///evil.example"):
        location = asked(OPEN, f"{path}?token={TOKEN}").headers["location"]
        assert location.startswith("/") and not location.startswith("//") and not location.startswith("/\\")


def test_elsewhere_a_token_is_drawn_and_on_loopback_none_is_needed() -> None:
    drawn = [access_for("0.0.0.0", 1, None, "machine").token for _ in range(2)]
    assert drawn[0] != drawn[1] and all(token is not None and len(token) >= 20 for token in drawn)
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert access_for(host, 1, None, "machine").token is None
    assert asked(guarded(access_for("127.0.0.1", 1, TOKEN, "machine")), "/").status == 401
