"""What the peer checks share: where the binary is, servers that always end, one line for each case."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
APLOMB = str(pathlib.Path(os.environ.get("APLOMB_BIN") or ROOT / "target" / "debug" / "aplomb").absolute())

START_SECONDS = 20
RUN_SECONDS = 60
OUTPUT_SHOWN = 4000

# A proxy of the machine is no peer of ours.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"

_cases = []
_transcript = []


def case(function):
    """Registers a case. Its name is the sentence that it proves."""
    _cases.append(function)
    return function


def expect(holds, why):
    if not holds:
        raise AssertionError(why)


def expect_equal(got, wanted, what):
    expect(got == wanted, f"{what}: expected {wanted!r}, got {got!r}")


class Run:
    """One command, run to its end: `code`, `stdout`, `stderr`."""

    def __init__(self, command, env):
        try:
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=RUN_SECONDS)
            self.code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            self.code, out, err = f"none within {RUN_SECONDS} s", late.stdout or b"", late.stderr or b""
        self.stdout, self.stderr = out.decode(errors="replace"), err.decode(errors="replace")
        _transcript.append(("exit code", str(self.code)))
        _transcript.append(("stdout", self.stdout))
        _transcript.append(("stderr", self.stderr))


class Server:
    """A process that is ready once its output matches `ready`, and that does not outlive the `with` block."""

    def __init__(self, command, ready):
        self.command, self.ready = command, ready

    def __enter__(self):
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT
        )
        try:
            self.match = self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        _transcript.append(("server", self.said()))
        self.output.close()

    def said(self):
        # By position: moving the offset, which the process shares, would make it overwrite what it wrote.
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors="replace")

    def _wait(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            match = re.search(self.ready, self.said())
            if match:
                return match
            time.sleep(0.02)
        raise AssertionError(f"{self.command[0]} did not start: {self.said().strip() or 'no output'}")


def run_cases(*arguments):
    """Runs every case with `arguments` and returns the process's exit code."""
    failed = 0
    for function in _cases:
        name = function.__name__.replace("_", " ")
        _transcript.clear()
        try:
            function(*arguments)
            print(f"ok   {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {_reason(error)}")
            _show_transcript()
    print(f"{len(_cases) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def need_aplomb():
    if not os.access(APLOMB, os.X_OK):
        sys.exit(f"{APLOMB} is not there: build it (cargo build), or name it in APLOMB_BIN")


def _reason(error):
    if isinstance(error, AssertionError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    cause = f", from {error.__cause__!r}" if error.__cause__ else ""
    return f"{type(error).__name__}: {error}{cause} ({pathlib.Path(where.filename).name}:{where.lineno})"


def _show_transcript():
    for label, text in _transcript:
        for line in text[-OUTPUT_SHOWN:].splitlines():
            print(f"     {label} | {line}")
    sys.stdout.flush()
