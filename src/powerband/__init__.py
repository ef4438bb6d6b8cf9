"""Powerband: a test bench that finds a server's best concurrency setting.

Its functions are the commands: `powerband.run("quickstart")`, `tune`, `resume`, `compare`, `read` (docs/python.md).
Names are imported when they are first used, so that `import powerband` and `powerband --help` take no time."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from powerband.api import Comparison as Comparison
    from powerband.api import Run as Run
    from powerband.api import compare as compare
    from powerband.api import read as read
    from powerband.api import resume as resume
    from powerband.api import run as run
    from powerband.api import tune as tune
    from powerband.base.errors import ExperimentError as ExperimentError
    from powerband.base.errors import MeasurementError as MeasurementError
    from powerband.base.errors import PowerbandError as PowerbandError
    from powerband.base.errors import SubjectError as SubjectError
    from powerband.base.errors import UsageError as UsageError
    from powerband.base.errors import UserInterruptError as UserInterruptError
    from powerband.base.version import __version__ as __version__

_ERRORS = [
    "ExperimentError",
    "MeasurementError",
    "PowerbandError",
    "SubjectError",
    "UsageError",
    "UserInterruptError",
]
_FROM_API = ["Comparison", "Run", "compare", "read", "resume", "run", "tune"]
__all__ = [*_ERRORS, *_FROM_API]  # noqa: PLE0604 - they are texts


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415 - not before it is used, either

    if name in _FROM_API:
        return getattr(import_module("powerband.api"), name)
    if name == "__version__":
        return import_module("powerband.base.version").__version__
    if name in _ERRORS:
        return getattr(import_module("powerband.base.errors"), name)
    raise AttributeError(f"module 'powerband' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
