"""Installs the real JMeter, fetched from Maven Central on first use and kept in the cache folder, and finds the JDK
that runs it.

In: nothing. Out: the folder of an installation with JMeter's own layout, made by Maven from the artifacts that JMeter
publishes. It is made once, for any number of runs; nothing is written anywhere else.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from powerband.base.errors import MeasurementError, UserInterruptError
from powerband.base.logs import end_of
from powerband.base.machine import alone_in_cache, cache_folder, writing_cache
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed, TrialInterrupted
from powerband.processes.jdk import Jdk, find_jdk
from powerband.processes.locked_jars import LIST, wrong_jars
from powerband.processes.probe_process import command_up
from powerband.processes.stop_request import StopRequest
from powerband.wire.specs import Launch

VERSION = "5.6.3"
OLDEST_JDK, NEWEST_JDK, TESTED_JDK = 11, 21, 17
"""JMeter's maintainers name 21 as the newest that it works with; on 25 a plan ends without an error and without a
sample."""
# The functions contain ${__P(...)}: without them it is 0. The rest is what a plan may use of JMeter's own elements.
ARTIFACTS = ("", "_core", "_config", "_components", "_functions", "_http", "_java", "_tcp", "_jdbc", "_ftp", "_junit")
# The others, by the package of their elements within org.apache.jmeter.protocol: few plans use them.
_LEFT_OUT = {
    **{"mail": "_mail", "smtp": "_mail", "ldap": "_ldap", "jms": "_jms", "mongodb": "_mongodb", "bolt": "_bolt"},
    "system": "_native",
}
_PROTOCOL = re.compile(r"org\.apache\.jmeter\.protocol\.(\w+)\.")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
HASHES = Path(__file__).with_name(LIST)
FETCH_TIMEOUT_S = 600  # Maven's last lines begin with its error
_GRACE_NS = 1_000_000_000  # a half-finished fetch is thrown away
_WORDS_BYTES = 4096  # the first of Maven's last lines is its error
_KEPT = "JMeter is kept there"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>powerband</groupId>
  <artifactId>jmeter</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "    <dependency><groupId>org.apache.jmeter</groupId><artifactId>ApacheJMeter{name}</artifactId>"
    "<version>{version}</version></dependency>"
)


@dataclass(frozen=True)
class JMeter:
    """An installed JMeter. `home`: a folder with the layout of JMeter's own distribution; `jdk`: the JDK that runs
    it."""

    home: Path
    jdk: Jdk

    @property
    def jar(self) -> Path:
        """The jar that starts JMeter; it finds all other jars from its own folder."""
        return self.home / "bin" / "ApacheJMeter.jar"


def jar_left_out(name: str) -> str | None:
    """Returns JMeter's own jar with the class of this full `name`, if it is one that is not installed; else None."""
    found = _PROTOCOL.match(name)
    artifact = _LEFT_OUT.get(found[1]) if found else None
    return None if artifact is None else f"ApacheJMeter{artifact}.jar"


def installed_jmeter(stop: StopRequest) -> JMeter:
    """Returns the installation, which is fetched now if it is missing; a request to stop ends that. Raises
    UserInterruptError, SubjectError (no JDK), MeasurementError (no Maven, no network, a cache folder that cannot be
    written)."""
    jdk = find_jdk(OLDEST_JDK, newest=NEWEST_JDK, preferred=TESTED_JDK, who=f"JMeter {VERSION}")
    jmeter = JMeter(cache_folder() / f"jmeter-{VERSION}", jdk)
    if not jmeter.jar.is_file():  # the folder is moved into place once everything is in it
        with alone_in_cache(jmeter.home, _KEPT, lambda: stop.requested):
            if not jmeter.jar.is_file():
                with writing_cache(jmeter.home, _KEPT):
                    _fetch(jmeter.home, jdk, stop)
    return jmeter


def _fetch(home: Path, jdk: Jdk, stop: StopRequest) -> None:
    with tempfile.TemporaryDirectory(prefix="jmeter-", dir=home.parent) as folder:
        jars = Path(folder) / "jars"
        _resolve(Path(folder), jars, jdk, stop)
        if wrong := wrong_jars(jars, HASHES):
            raise MeasurementError(
                f"what Maven fetched is not the JMeter {VERSION} expected: {'; '.join(wrong[:3])}. Ask who "
                "keeps the mirror in your settings.xml"
            )
        _lay_out(jars, Path(folder) / "home")
        shutil.rmtree(home, ignore_errors=True)
        (Path(folder) / "home").rename(home)


def _resolve(folder: Path, jars: Path, jdk: Jdk, stop: StopRequest) -> None:
    """Fetches the jars by Maven with its own settings, so that a mirror named there is used. Maven ends with powerband,
    even if powerband is killed."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MeasurementError(
            f"JMeter {VERSION} is fetched by Maven, and there is no mvn on PATH: install it (Debian's package maven)"
        )
    pom, log = folder / "pom.xml", folder / "maven.log"
    pom.write_text(_POM.format(dependencies="\n".join(_DEPENDENCY.format(name=n, version=VERSION) for n in ARTIFACTS)))
    copied = [PLUGIN, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    launch = Launch(
        name="mvn",
        argv=(maven, "-q", "-B", "--strict-checksums", "-f", str(pom), *copied),
        env=(("JAVA_HOME", str(jdk.home)),),
        cwd=str(folder),
        log_file=str(log),
        grace_ns=_GRACE_NS,
    )
    try:
        with Pump(stop) as pump, command_up(find_engine(), launch, log, pump) as fetching:
            pump.wait(lambda: fetching.exited is not None, FETCH_TIMEOUT_S)
            exited = fetching.exited
    except TrialInterrupted:
        raise UserInterruptError(f"interrupted before JMeter {VERSION} was fetched") from None
    except TrialFailed as failed:
        raise MeasurementError(f"cannot run {maven}: {failed}") from failed
    if exited is None:
        raise MeasurementError(
            f"Maven did not fetch JMeter {VERSION} within {FETCH_TIMEOUT_S} s: is Maven Central, or the mirror in "
            "your settings.xml, reachable?"
        )
    if exited.exit_code != 0:
        said = next((line for line in end_of(log, _WORDS_BYTES).splitlines() if "ERROR" in line), "it said nothing")
        raise MeasurementError(
            f"Maven could not fetch JMeter {VERSION} ({said[:400]}): is Maven Central, or the mirror in your "
            "settings.xml, reachable?"
        )


def _lay_out(jars: Path, home: Path) -> None:
    """Moves the jars to where JMeter's launcher looks for them: itself and its settings in bin/, its own parts in
    lib/ext/, the only folder in which it searches for functions, and all others in lib/."""
    for name in ("bin", "lib/ext", "lib/junit"):
        (home / name).mkdir(parents=True)
    for jar in sorted(jars.glob("*.jar")):
        own = jar.name.startswith("ApacheJMeter_")
        shutil.move(jar, home / "lib" / ("ext" if own else "") / jar.name)
    with zipfile.ZipFile(home / "lib" / "ext" / f"ApacheJMeter_config-{VERSION}.jar") as settings:
        settings.extractall(home, [name for name in settings.namelist() if name.startswith("bin/")])
    shutil.move(home / "lib" / f"ApacheJMeter-{VERSION}.jar", home / "bin" / "ApacheJMeter.jar")
