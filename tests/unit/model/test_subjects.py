import pytest

from powerband.base.errors import ExperimentError
from powerband.model.experiment import Parameter, Subject
from powerband.model.plan import Level, Setting
from powerband.model.subjects import check_level, render_command, render_env, render_text
from powerband.model.templates import placeholders

SUBJECT = Subject(
    name="s",
    command=("{engine}", "--port={port}", "-t", "{threads}", '{"a": 1}', "{{literal}}", "{wait}"),
    env={"POOL": "{threads}"},
    parameters={
        "threads": Parameter(type="int", default=8, help=""),
        "wait": Parameter(type="duration", default="5ms", help=""),
    },
    set={"wait": "1500us"},
)

GIVEN = {"port": "80", "engine": "/e"}


def test_level_beats_set_beats_default() -> None:
    setting = Setting((("threads", 4),))
    assert render_command(SUBJECT, setting, GIVEN) == [
        "/e", "--port=80", "-t", "4", '{"a": 1}', "{literal}", "1500us",
    ]  # fmt: skip
    assert render_command(SUBJECT, Setting(()), GIVEN)[3] == "8"
    assert render_env(SUBJECT, setting, GIVEN) == {"POOL": "4"}
    assert render_text(SUBJECT, setting, GIVEN, "http://h:{port}/{threads}") == "http://h:80/4"


@pytest.mark.parametrize(
    ("written", "filled"),
    [(0, "0s"), ("1.5s", "1500ms"), ("20 ms", "20ms"), ("1min", "1m"), ("5µs", "5us"), ("1h", "1h"), ("60s", "60s")],
)
def test_a_duration_is_filled_in_as_every_program_reads_it(written: Level, filled: str) -> None:
    assert render_command(SUBJECT, Setting((("wait", written),)), GIVEN)[-1] == filled


def test_levels_are_written_as_a_person_would() -> None:
    subject = Subject(name="s", command=("{a}", "{b}", "{c}"))
    assert render_command(subject, Setting((("a", True), ("b", 2.0), ("c", "x y"))), {}) == ["true", "2", "x y"]


def test_a_placeholder_that_stands_for_nothing() -> None:
    subject = Subject(name="s", command=("{thread}",), set={"threads": 3})
    with pytest.raises(
        ExperimentError, match=r"subject.command: \{thread\} stands for nothing; did you mean threads\?"
    ):
        render_command(subject, Setting(()), {})


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ('{"server":{"tomcat":{"threads":{"max":{threads}}}}}', '{"server":{"tomcat":{"threads":{"max":4}}}}'),
        ('{"pool":{"size":8}} {threads}', '{"pool":{"size":8}} 4'),
        ('{{"pool": {{"size": {threads}}}}}', '{"pool": {"size": 4}}'),
        ("{{{threads}}} }} {{x}}", "{4} }} {x}"),
        ('{"pool": {"size": {threads}}}}', '{"pool": {"size": 4}}'),  # only closing braces were doubled
        ('{"pool": 8}} {threads}', '{"pool": 8} 4'),
    ],
)
def test_json_keeps_its_braces(written: str, filled: str) -> None:
    assert render_text(SUBJECT, Setting((("threads", 4),)), GIVEN, written) == filled


def test_placeholders() -> None:
    assert placeholders(["{a} {b.c} {{d}} {} {1} {e f}"]) == {"a", "b.c"}


@pytest.mark.parametrize(
    ("kind", "level"),
    [("int", 4), ("float", 4),
      ("float", 0.5), ("duration", "5ms"), ("duration", 0), ("bool", False), ("string", "x"),
     ("string", 5), ("choice", "a"), ("choice", 2)],
)  # fmt: skip
def test_levels_of_the_right_type(kind: str, level: Level) -> None:
    check_level(Parameter.model_validate({"type": kind, "default": level, "help": "", "choices": ["a", 2]}), level)


@pytest.mark.parametrize(
    ("kind", "level", "said"),
    [
        ("int", 4.5, "4.5 is no whole number"),
        ("int", True, "true is no whole number"),
        ("int", "4", "4 is no whole number"),
        ("float", "x", "x is no number"),
        ("duration", 5, "5 has no unit: write 5s, 5ms"),
        ("duration", "5 sec", "is no duration"),
        ("bool", "yes", "yes must be true or false"),
        ("choice", "aa1", "is not one of its choices; did you mean aaa"),
    ],
)
def test_levels_of_a_wrong_type(kind: str, level: Level, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_level(
            Parameter.model_validate({"type": kind, "default": level, "help": "", "choices": ["aaa", 2]}), level
        )


@pytest.mark.parametrize(
    ("command", "client"),
    [
        ("docker run --rm image", "docker"),
        ("sudo /usr/bin/docker --context x container run image", "sudo /usr/bin/docker --context x container"),
        ("sudo -n -u docker env -u X HOST=tcp://x:1 stdbuf -oL docker run image", "sudo -n -u docker env -u X "
         "HOST=tcp://x:1 stdbuf -oL docker"),
        ("nice -n 5 timeout 1h taskset -c 0,1 docker run image", "nice -n 5 timeout 1h taskset -c 0,1 docker"),
        ("docker start app", ""),
        ("make -C docker run", ""),
        ("npm --prefix docker run start", ""),
        ("sudo -u docker npm run start", ""),
        ("uv --directory docker run app.py", ""),
        ("./gradlew -p services/docker run", ""),
        ("./server run docker", ""),
        ("go run docker", ""),
    ],
)  # fmt: skip
def test_a_command_that_starts_a_container_is_known_by_its_words(command: str, client: str) -> None:
    assert Subject(name="s", command=tuple(command.split())).container_client == tuple(client.split())
