"""Interrupts a command in the middle of its streamed answer, and checks that it ends at once and says why.

The command's standard output is a terminal, so that it streams. Usage: python3 interrupt.py COMMAND...
"""

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

MIDDLE = 40  # characters shown, far from the end of a long story
MIDDLE_SECONDS = 60
END_SECONDS = 10
ESCAPE_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


class Screen(threading.Thread):
    """Reads what the command writes to its terminal. `middle` is set once enough text is there."""

    def __init__(self, terminal):
        super().__init__(daemon=True)
        self.terminal, self.shown, self.middle = terminal, b"", threading.Event()

    def run(self):
        while piece := self._read():
            self.shown += piece
            if len(ESCAPE_SEQUENCE.sub(b"", self.shown)) >= MIDDLE:
                self.middle.set()

    def _read(self):
        try:
            return os.read(self.terminal, 4096)
        except OSError:  # The command has closed its end.
            return b""


def interrupt(command, talk):
    """Returns the exit code, the milliseconds from the signal to the end, and what was on the screen."""
    terminal, inner = pty.openpty()
    screen = Screen(terminal)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=inner, stderr=talk)
    os.close(inner)
    try:
        screen.start()
        if not screen.middle.wait(MIDDLE_SECONDS):
            sys.exit(f"FAIL fewer than {MIDDLE} characters within {MIDDLE_SECONDS} s: {screen.shown!r}")
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(END_SECONDS)
        took = (time.monotonic() - sent) * 1000
    except subprocess.TimeoutExpired:
        sys.exit(f"FAIL still running {END_SECONDS} s after the signal")
    finally:
        process.kill()
        process.wait()
    screen.join(END_SECONDS)
    return code, took, screen.shown.decode(errors="replace")


def main(command):
    with tempfile.TemporaryFile() as talk:
        code, took, shown = interrupt(command, talk)
        talk.seek(0)
        said = talk.read().decode(errors="replace")
    print(f"interrupted: exit code {code}, {took:.0f} ms after the signal, {len(shown)} characters shown")
    if code != 130:
        sys.exit(f"FAIL exit code: expected 130, got {code}\n{said}")
    if "execution.cancelled" not in said:
        sys.exit(f"FAIL standard error does not name execution.cancelled:\n{said}")


if __name__ == "__main__":
    main(sys.argv[1:])
