"""The cause that a server's log names, in logs of real runtimes."""

from __future__ import annotations

import pytest

from powerband.base.logs import cause_in

JAVA = """Starting up
Exception in thread "main" java.lang.IllegalStateException: cannot start
\tat J.main(J.java:1)
Caused by: java.lang.RuntimeException: bean pool
\tat J.main(J.java:1)
Caused by: java.lang.NumberFormatException: For input string: "x"
\tat java.base/java.lang.Integer.parseInt(Integer.java:668)
\t... 8 more
"""
PYTHON = """INFO: begins
Traceback (most recent call last):
  File "p.py", line 2, in <module>
    int("x")
ValueError: invalid literal for int() with base 10: 'x'
"""
CHAINED = f"""{PYTHON}
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "p.py", line 4, in <module>
    raise RuntimeError("cannot start") from e
RuntimeError: cannot start
"""
NODE = """node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module 'nope-module'
Require stack:
- /srv/a.js
    at require (node:internal/helpers:182:18) {
  code: 'MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
GO = """panic: assignment to entry in nil map

goroutine 1 [running]:
main.main()
\t/srv/p.go:2 +0x34
exit status 2
"""
RUST = """thread 'main' panicked at src/main.rs:2:5:
no pool of that size
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
RUBY = """/srv/a.rb:1:in `<main>': no pool (RuntimeError)
\tfrom /srv/b.rb:2:in `load'
"""
PHP = """PHP Fatal error:  Uncaught Exception: no pool in /srv/a.php:2
Stack trace:
#0 {main}
  thrown in /srv/a.php on line 2
"""
PLAIN = """server 1.2 reads its options
[ERROR] unknown option: pool
usage: server --port N
see the manual
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (JAVA, 'java.lang.NumberFormatException: For input string: "x"'),
        (PYTHON, "ValueError: invalid literal for int() with base 10: 'x'"),
        (CHAINED, "ValueError: invalid literal for int() with base 10: 'x'"),
        (CHAINED.replace("The above", "Not the above").replace("direct cause", "end"), "RuntimeError: cannot start"),
        (NODE, "Error: Cannot find module 'nope-module'"),
        (GO, "panic: assignment to entry in nil map"),
        (RUST, "thread 'main' panicked at src/main.rs:2:5: no pool of that size"),
        (RUBY, "/srv/a.rb:1:in `<main>': no pool (RuntimeError)"),
        (PHP, "PHP Fatal error: Uncaught Exception: no pool in /srv/a.php:2"),
        (PLAIN, "[ERROR] unknown option: pool"),
        ("listening\nready\nbye\n", ""),
    ],
)
def test_the_cause_is_one_line(log: str, cause: str) -> None:
    assert cause_in(log) == cause
