"""The installation of JMeter: laid out as its own distribution, once, by a Maven that the test plays; and the choice of
a JDK."""

from __future__ import annotations

import zipfile
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from powerband.base.errors import ExperimentError, MeasurementError, SubjectError
from powerband.loads import kind_of
from powerband.loads.jmeter.install import ARTIFACTS, VERSION, JMeter, installed_jmeter, jar_left_out
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load
from powerband.processes.jdk import find_jdk
from powerband.processes.stop_request import StopRequest

MAVEN = """#!/bin/sh
echo "$@" >> {calls}
for word in "$@"; do case "$word" in
  -DoutputDirectory=*) mkdir -p "${{word#*=}}"; cp {jars}/*.jar "${{word#*=}}" ;;
esac; done
{then}
"""


def jdk(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a JDK 17, without Maven, and with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(jdk(tmp_path / "jdk-17", "17.0.15")))
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    return tmp_path


def fetched() -> JMeter:
    with closing(StopRequest()) as stop:
        return installed_jmeter(stop)


def play_maven(machine: Path, then: str = "") -> Path:
    """Installs a script that plays Maven; returns the file in which it records its calls."""
    jars, calls = machine / "jars", machine / "calls"
    jars.mkdir()
    for name in ("groovy-3.0.20.jar", *(f"ApacheJMeter{artifact}-{VERSION}.jar" for artifact in ARTIFACTS)):
        with zipfile.ZipFile(jars / name, "w") as jar:
            jar.writestr("bin/jmeter.properties", "x=y")
            jar.writestr("META-INF/MANIFEST.MF", "")
    maven = machine / "path" / "mvn"
    maven.write_text(MAVEN.format(calls=calls, jars=jars, then=then))
    maven.chmod(0o755)
    return calls


def test_it_is_laid_out_as_its_own_and_fetched_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = play_maven(machine)
    listed = [f"{sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in (machine / "jars").iterdir()]
    (machine / "jars.sha256").write_text("".join(listed))
    monkeypatch.setattr("powerband.loads.jmeter.install.HASHES", machine / "jars.sha256")
    made = fetched()
    assert fetched() == made
    assert len(calls.read_text().splitlines()) == 1
    assert made.jar.is_file() and made.jdk.version == 17
    assert (made.home / "bin" / "jmeter.properties").read_text() == "x=y"
    assert (made.home / "lib" / "groovy-3.0.20.jar").is_file()
    assert (made.home / "lib" / "ext" / f"ApacheJMeter_functions-{VERSION}.jar").is_file()
    assert (made.home / "lib" / "junit").is_dir()
    assert sorted(path.name for path in made.home.parent.iterdir()) == [f"jmeter-{VERSION}", f"jmeter-{VERSION}.lock"]


def test_other_jars_than_jmeters_are_refused(machine: Path) -> None:
    play_maven(machine)
    with pytest.raises(MeasurementError, match=r"not the JMeter .* expected: ApacheJMeter-.*is another file"):
        fetched()
    assert not (machine / "cache" / "powerband" / f"jmeter-{VERSION}").exists()


def test_a_maven_that_fails_leaves_nothing(machine: Path) -> None:
    play_maven(machine, 'echo "[ERROR] Could not transfer artifact"; exit 1')
    with pytest.raises(MeasurementError, match=r"could not fetch JMeter.*Could not transfer artifact.*reachable"):
        fetched()
    assert not (machine / "cache" / "powerband" / f"jmeter-{VERSION}").exists()


def test_no_maven(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine / "path"))
    with pytest.raises(MeasurementError, match="there is no mvn on PATH: install it"):
        fetched()


def test_a_cache_that_cannot_be_written(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    with pytest.raises(MeasurementError, match="set XDG_CACHE_HOME to a folder"):
        fetched()


@pytest.mark.parametrize(("version", "does"), [("1.8.0_402", False), ("11.0.2", True), ("21", True), ("25.0.1", False)])
def test_the_jdk_is_neither_too_old_nor_too_new(tmp_path: Path, version: str, *, does: bool) -> None:
    home = jdk(tmp_path / "given", version)
    fallback = jdk(tmp_path / "jvm" / "other", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": ""}

    def found(installed: Path) -> Path:
        options = {"newest": 21, "who": "JMeter", "environment": environment, "installed": installed}
        return find_jdk(11, **options).home  # type: ignore[arg-type]

    assert found(tmp_path / "jvm") == (home if does else fallback)
    if not does:
        with pytest.raises(SubjectError, match=r"JMeter needs a JDK of version 11 to 21.*JAVA_HOME.*is version"):
            found(tmp_path / "none")


def test_a_run_is_not_begun_without_its_plan(machine: Path) -> None:
    case = Experiment(name="x", subject=Subject(name="s", command=("x",)), load=Load(jmeter=str(machine / "gone.jmx")))
    plain = case.model_copy(update={"load": Load(users=1)})
    with closing(StopRequest()) as stop:
        kind_of(plain).prepare(plain, stop)
        with pytest.raises(ExperimentError, match="there is no JMeter plan"):
            kind_of(case).prepare(case, stop)


@pytest.mark.parametrize(
    ("name", "jar"),
    [
        ("org.apache.jmeter.protocol.smtp.sampler.SmtpSampler", "ApacheJMeter_mail.jar"),
        ("org.apache.jmeter.protocol.system.SystemSampler", "ApacheJMeter_native.jar"),
        ("org.apache.jmeter.protocol.http.sampler.SoapSampler", None),
        ("kg.apc.jmeter.timers.VariableThroughputTimer", None),
    ],
)
def test_which_of_jmeters_jars_is_left_out(name: str, jar: str | None) -> None:
    assert jar_left_out(name) == jar
