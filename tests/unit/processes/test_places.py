"""Where a server is, by a planted /proc and /sys."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace

import pytest

from powerband.processes import places
from powerband.processes.places import Place, behind_bridge, place_of

NOTHING: Mapping[str, str] = {}


def word(address: str) -> str:
    return f"{int.from_bytes(IPv4Address(address).packed, sys.byteorder):08X}"


def plant(root: Path, ports: Mapping[str, Mapping[str, str]], *, bridge: bool = True) -> Path:
    """Plants a machine: a card to the world, and an interface `net0` to 172.17.0.0/16, where a gateway leads to
    10.1.0.0/16. `ports`: of the latter, by name, with the files of each."""
    routes = [
        ("eth0", "0.0.0.0", "192.0.2.254", "0.0.0.0"),
        ("net0", "172.17.0.0", "0.0.0.0", "255.255.0.0"),
        ("eth0", "172.0.0.0", "0.0.0.0", "255.0.0.0"),
        ("net0", "10.1.0.0", "172.17.0.5", "255.255.0.0"),
    ]
    lines = [f"{name} {word(net)} {word(by)} 0001 0 0 0 {word(mask)} 0 0 0" for name, net, by, mask in routes]
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/route").write_text("\n".join(["Iface Destination ...", *lines, ""]))
    interfaces = root / "sys/class/net"
    (interfaces / "eth0/device").mkdir(parents=True)
    (interfaces / "net0").mkdir()
    if bridge:
        (interfaces / "net0/bridge").mkdir()
        (interfaces / "net0/brif").mkdir()
    for name, files in ports.items():
        (interfaces / name).mkdir(exist_ok=True)
        (interfaces / name / "uevent").write_text(f"INTERFACE={name}\n")
        (interfaces / "net0/brif" / name).mkdir()
        for file, text in files.items():
            (interfaces / name / file).write_text(text)
    return root


@pytest.mark.parametrize(
    ("ports", "here"),
    [
        ({"veth1": NOTHING, "tap0": NOTHING}, True),
        ({"veth1": {"uevent": "DEVTYPE=veth\n"}}, True),
        ({"veth1": NOTHING, "eth0": NOTHING}, False),
        ({"veth1": NOTHING, "eth0.7": {"lower_eth0": ""}}, False),
        ({"veth1": NOTHING, "far": {"uevent": "DEVTYPE=vxlan\nINTERFACE=far\n"}}, False),
    ],
    ids=["containers and machines", "a kind of its own", "a card", "a VLAN", "a tunnel"],
)
def test_who_is_behind_a_bridge_without_a_way_out_is_on_this_machine(
    tmp_path: Path, ports: Mapping[str, Mapping[str, str]], here: bool
) -> None:
    root = plant(tmp_path, ports)
    assert behind_bridge("172.17.0.2", root) is here
    assert not behind_bridge("172.18.0.2", root), "behind the card"
    assert not behind_bridge("10.1.0.2", root), "behind a gateway"
    assert not behind_bridge("fd00::2", root) and not behind_bridge("172.17.0.2", tmp_path / "gone")


def test_a_cable_to_another_network_is_no_bridge(tmp_path: Path) -> None:
    assert not behind_bridge("172.17.0.2", plant(tmp_path, {}, bridge=False))


@pytest.mark.parametrize(
    ("host", "ends", "bridged", "place"),
    [
        ("127.0.0.1", None, False, Place(here=True)),
        ("192.0.2.1", None, True, Place(here=False)),
        ("192.0.2.1", ("192.0.2.1", "192.0.2.1"), False, Place(here=True)),
        ("myhost", ("127.0.0.1", "127.0.1.1"), False, Place(here=True)),
        ("192.0.2.1", ("192.0.2.9", "192.0.2.1"), False, Place(here=False)),
        ("172.17.0.2", ("172.17.0.1", "172.17.0.2"), True, Place(here=True, own_network=True)),
    ],
    ids=["loopback", "nobody answers", "its own address", "its own name", "another machine", "a container"],
)
def test_a_server_in_a_network_of_its_own_may_be_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str, ends: tuple[str, str] | None, bridged: bool, place: Place
) -> None:
    def connect(address: tuple[str, int], timeout_s: float) -> nullcontext[SimpleNamespace]:
        if ends is None:
            raise TimeoutError
        own, other = ends
        return nullcontext(SimpleNamespace(getsockname=lambda: (own, 1), getpeername=lambda: (other, 80)))

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(places, "behind_bridge", lambda address: bridged)
    found = place_of(host, 80)
    assert found == place
    assert found.in_our_network is (place.here and not place.own_network)
    assert found.record() == {"here": place.here, **({"own_network": True} if place.own_network else {})}
