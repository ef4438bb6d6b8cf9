"""Gets figures from the .NET runtimes of a server, by a startup hook that is put into the server's environment.

If the command names no .NET program, nothing is set. A server whose own `env` sets DOTNET_STARTUP_HOOKS to nothing gets
no hook; its own hooks run before this one. Missing figures do not fail the trial: the record says why there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from powerband.base.errors import MeasurementError
from powerband.loads.driver import TrialSetup
from powerband.processes.dotnet import ENV
from powerband.processes.dotnet_hook import (
    HOOKS,
    HookBuild,
    NoHookError,
    check_loads,
    dotnet_program,
    hook_build,
    hook_variables,
)
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed
from powerband.processes.probe_process import command_up
from powerband.processes.subject_process import Rendered
from powerband.processes.toolchain import build_once
from powerband.trials.instruments.instrument import Instrument
from powerband.wire.specs import Launch

_BUILD_WITHIN_S = 120.0  # arbitrary: the compiler takes 2 s, on a busy machine ten times as long
_GRACE_NS = 1_000_000_000  # short, since a half-finished build is thrown away
_NOT_RUN = (
    "the program did not run it, as one that was published trimmed or as native code, or it may not write to the "
    "trial's folder"
)


class DotnetFigures(Instrument):
    """Puts the startup hook, compiled once, into the server's environment."""

    def __init__(self, setup: TrialSetup) -> None:
        self._setup = setup
        self._pump: Pump | None = None
        self._set = False
        self._missing = ""

    @contextmanager
    def around_trial(self, pump: Pump) -> Iterator[None]:
        """Keeps the pump, by which the hook's compiler is run before the launch."""
        self._pump = pump
        yield

    def environment(self, rendered: Rendered) -> Mapping[str, str]:
        """The variables that make a .NET program run the hook, which is compiled if need be; empty for any other
        program."""
        own = dict(rendered.env)
        program = dotnet_program(rendered.argv, rendered.cwd, own.get("PATH", os.environ.get("PATH")))
        if program is None or own.get(HOOKS) == "":
            return {}
        folder = self._setup.directory.dotnet
        try:
            build = hook_build()
            check_loads(program, build)
            self._compile(build)
            folder.mkdir(mode=0o700, exist_ok=True)
        except (NoHookError, MeasurementError) as error:  # the latter: the cache folder cannot be written
            self._missing = str(error)
            return {}
        except OSError as error:
            self._missing = f"the trial's folder cannot be written: {error.strerror or error}"
            return {}
        self._set = True
        return hook_variables(build.assembly, folder.absolute(), own.get(HOOKS, os.environ.get(HOOKS, "")))

    def record(self) -> dict[str, Any]:
        if self._set and not any(self._setup.directory.dotnet.glob("*.jsonl")):
            self._missing = _NOT_RUN
        return {"no_dotnet_figures": self._missing}

    def _compile(self, build: HookBuild) -> None:
        """Compiles the hook, unless it is in the cache. Raises NoHookError, TrialInterrupted."""
        assert self._pump is not None
        build_once({"build": str(build.folder)}, partial(self._run, build), self._pump.check_stop)
        if not build.assembly.is_file():
            raise NoHookError("the compiler of the .NET SDK failed")

    def _run(self, build: HookBuild, given: Mapping[str, str]) -> bool:
        assert self._pump is not None
        log = self._setup.directory.path / "dotnet-hook.log"
        launch = Launch(
            name="dotnet-hook",
            argv=tuple(word.replace("{build}", given["build"]) for word in build.argv),
            env=ENV,
            log_file=str(log.absolute()),
            grace_ns=_GRACE_NS,
        )
        try:
            with command_up(self._setup.engine, launch, log, self._pump) as compiler:
                self._pump.wait(lambda: compiler.exited is not None, _BUILD_WITHIN_S)
        except TrialFailed as failed:
            raise NoHookError(f"the compiler of the .NET SDK cannot be run ({failed})") from failed
        done = compiler.exited is not None and compiler.exited.exit_code == 0
        if done:
            log.unlink(missing_ok=True)
        return done
