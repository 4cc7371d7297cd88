"""A program on a pseudo-terminal: type keys, wait for text."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time


class Terminal:
    """Starts argv with the terminal as its standard input, output and error. stdout may be a file that
    gets the output instead. Use it in a with statement: what still runs at its end is killed."""

    def __init__(self, argv, env=None, stdout=None):
        self.text = ""
        self._raw = b""
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if stdout is not None:
                os.dup2(stdout.fileno(), 1)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execve(argv[0], [str(a) for a in argv], {**os.environ, "TERM": "xterm", **(env or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def _read(self, seconds):
        """True when something came."""
        if not select.select([self.fd], [], [], max(seconds, 0))[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # Linux: the program is gone
            return False
        self._raw += data
        self.text = self._raw.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def wait(self, pattern, seconds=10, start=0):
        """Read until the regular expression appears in the text from start on; returns its end."""
        deadline = time.monotonic() + seconds
        while not (found := re.compile(pattern, re.S).search(self.text, start)):
            assert time.monotonic() < deadline, f"no {pattern!r} within {seconds} s in:\n{self.text[start:]}"
            self._read(0.1)
        return found.end()

    def line(self, text, pattern, seconds=10):
        """Type a line and wait for what it brings."""
        start = len(self.text)
        self.type(text + "\r")
        return self.wait(pattern, seconds, start)

    def leave(self, seconds=30):
        """Ctrl-D, and the program's end. libedit prints its prompt before it switches the terminal to raw
        keys; a Ctrl-D that comes in between is an empty read to the terminal and nothing to libedit, so it is
        typed again where it was lost, as a person would."""
        return self.finish(seconds, keys="\x04")

    def finish(self, seconds=10, keys=None):
        """Wait for the program's end, typing keys once a second; returns the exit code, minus the signal
        if one killed it."""
        deadline, due = time.monotonic() + seconds, 0
        while self.status is None:
            if keys and time.monotonic() >= due:
                try:
                    self.type(keys)
                except OSError:  # the program is gone
                    pass
                due = time.monotonic() + 1
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, f"still running after {seconds} s:\n{self.text}"
        while self._read(0):
            pass
        return self.status
