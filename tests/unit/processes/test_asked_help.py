"""What a jar contains says whether a pool of Tomcat's threads serves in it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from powerband.processes.asked_help import has_tomcat_pool, is_spring

TOMCAT = {"BOOT-INF/lib/tomcat-embed-core-11.0.9.jar": ""}
PROPERTIES = "BOOT-INF/classes/application.properties"
YAML = "BOOT-INF/classes/application.yml"
NESTED = "# on\nspring:\n  application:\n    name: shop\n  threads:\n    virtual:\n      enabled: {}\nserver: 1\n"
VIRTUAL = "spring.threads.virtual.enabled"


def jar(folder: Path, files: dict[str, str]) -> str:
    with zipfile.ZipFile(folder / "shop.jar", "w") as made:
        for name, text in ({"BOOT-INF/classpath.idx": ""} | files).items():
            made.writestr(name, text)
    return str(folder / "shop.jar")


@pytest.mark.parametrize(
    ("files", "has_pool"),
    [
        (TOMCAT, True),
        ({}, False),
        ({"BOOT-INF/lib/tomcat-embed-el-11.0.9.jar": "", "BOOT-INF/lib/jetty-server-12.0.1.jar": ""}, False),
        (TOMCAT | {PROPERTIES: f"server.port=80\n{VIRTUAL} = true\n"}, False),
        (TOMCAT | {PROPERTIES: f"#{VIRTUAL}=true\n{VIRTUAL}=false\n"}, True),
        (TOMCAT | {YAML: NESTED.format("true")}, False),
        (TOMCAT | {YAML: NESTED.format("${VIRTUAL:true}")}, False),
        (TOMCAT | {YAML: NESTED.format("false")}, True),
        (TOMCAT | {YAML: f"{VIRTUAL}: 'on'\n"}, False),
        (TOMCAT | {YAML: "spring:\n  threads:\n    other: 1\nvirtual:\n  enabled: true\n"}, True),
    ],
)
def test_a_pool_of_tomcat_serves_unless_it_is_not_there_or_threads_are_virtual(
    files: dict[str, str], has_pool: bool, tmp_path: Path
) -> None:
    command = ["java", "-jar", jar(tmp_path, files)]
    assert is_spring(command) and has_tomcat_pool(command, []) == has_pool


@pytest.mark.parametrize(
    ("jvm", "argument", "variable", "has_pool"),
    [
        ([], [f"--{VIRTUAL}=true"], [], False),
        ([f"-D{VIRTUAL}=true"], [], [], False),
        ([], [], ["--env", "SPRING_THREADS_VIRTUAL_ENABLED=TRUE"], False),
        ([], [], ["--env", "SPRING_THREADS_VIRTUAL_ENABLED=false"], True),
        ([f"-D{VIRTUAL}=true"], [f"--{VIRTUAL}=false"], [], True),
    ],
)
def test_the_command_and_its_variables_turn_virtual_threads_on_and_off(
    jvm: list[str], argument: list[str], variable: list[str], has_pool: bool, tmp_path: Path
) -> None:
    path = jar(tmp_path, TOMCAT | {PROPERTIES: f"{VIRTUAL}={str(has_pool).lower()}\n"})
    assert has_tomcat_pool(["java", *jvm, "-jar", path, *argument], variable) == has_pool


@pytest.mark.parametrize("command", [["java", "-jar"], ["java", "-jar", "/no/such.jar"], ["java", "-jar", "/dev/null"]])
def test_what_is_no_jar_is_none_of_spring(command: list[str]) -> None:
    assert not is_spring(command) and not has_tomcat_pool(command, [])
