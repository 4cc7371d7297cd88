"""A memory control group around one command: v1 or v2, whichever this machine lets us make."""
import os
import pathlib
import subprocess


class NoGroup(Exception):
    """No group can be made here; the text says why."""


def _mounts():
    """(file system type, mount point, options) of every control group mount."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            yield kind, pathlib.Path(point), options.split(",")


def _own_path(controller):
    """This process's group: of a v1 controller, or "" for v2."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path.lstrip("/")
    return ""


class Group:
    """A new group below our own. As a context manager it removes itself."""

    def __init__(self, limit_bytes):
        self.path = None
        reasons = []
        for kind, point, options in _mounts():
            if kind == "cgroup" and "memory" not in options:
                continue
            self.version = 1 if kind == "cgroup" else 2
            parent = point / _own_path("memory" if self.version == 1 else "")
            path = (parent if parent.is_dir() else point) / f"sluice-test-{os.getpid()}"
            try:
                path.mkdir()
            except OSError as e:
                reasons.append(f"{path}: {e.strerror}")
                continue
            if not (path / self._name("limit")).exists():
                path.rmdir()
                reasons.append(f"{path}: its parent does not pass the memory controller on")
                continue
            self.path = path
            break
        if not self.path:
            raise NoGroup("; ".join(reasons) or "no memory controller is mounted")
        try:
            self._limit(limit_bytes)
        except OSError as e:
            self.close()
            raise NoGroup(f"{self.path}: {e.strerror}") from e

    def _name(self, what):
        return {"limit": ("memory.limit_in_bytes", "memory.max"),
                "usage": ("memory.usage_in_bytes", "memory.current"),
                "peak": ("memory.max_usage_in_bytes", "memory.peak")}[what][self.version - 1]

    def _write(self, name, value):
        (self.path / name).write_text(str(value))

    def _limit(self, limit_bytes):
        self._write(self._name("limit"), limit_bytes)
        # Nothing may be swapped out.
        if self.version == 2:
            if (self.path / "memory.swap.max").exists():
                self._write("memory.swap.max", 0)
            return
        if (self.path / "memory.memsw.limit_in_bytes").exists():
            self._write("memory.memsw.limit_in_bytes", limit_bytes)
        self._write("memory.swappiness", 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.path.rmdir()

    def run(self, command, before="", **more):
        """Run a command as a member. before: shell commands in front of it, such as limits. The shell that
        joins becomes the command, so that nobody else is charged to the group."""
        return subprocess.run(self._member(command, before), **more)

    def start(self, command, **more):
        """The same, without waiting for its end."""
        return subprocess.Popen(self._member(command), **more)

    def _member(self, command, before=""):
        script = f'echo $$ >"{self.path}/cgroup.procs" && {before or ":"} && exec "$@"'
        return ["sh", "-c", script, "sh", *map(str, command)]

    def usage_bytes(self):
        return int((self.path / self._name("usage")).read_text())

    def lower(self, limit_bytes):
        """A lower limit, while there are members. Not below what is used: v1 refuses that, v2 kills."""
        self._write(self._name("limit"), limit_bytes)

    def failures(self):
        """How often a charge did not fit, even where reclaiming then helped, and how often that killed."""
        if self.version == 1:
            kills = dict(l.split() for l in (self.path / "memory.oom_control").read_text().splitlines())
            return {"failed": int((self.path / "memory.failcnt").read_text()),
                    "killed": int(kills.get("oom_kill", 0))}
        events = dict(l.split() for l in (self.path / "memory.events").read_text().splitlines())
        return {"failed": int(events["max"]), "killed": int(events.get("oom_kill", 0))}

    def peak_bytes(self):
        """None where the kernel does not tell (v2 before Linux 5.19)."""
        file = self.path / self._name("peak")
        return int(file.read_text()) if file.exists() else None

    def stat(self):
        return {k: int(v) for k, v in (l.split() for l in (self.path / "memory.stat").read_text().splitlines())}
