#!/usr/bin/env python3
"""Includes point down the floors of the house (docs/architecture.md).

usage: check_floors.py [ROOT]       check the sources below ROOT/src
       check_floors.py --self-test  show that each kind of violation is found

A folder may include its own headers, those of the folders named for it below, and what these may
include in their turn. sluice/status.h is the vocabulary that all floors share.
"""
import pathlib
import re
import sys
import tempfile

# folder: what it stands on directly
STANDS_ON = {
    "base": [],
    "io": ["base"],
    "tensor": ["base"],
    "kernels": ["tensor"],
    "backend": ["kernels"],
    "text": ["base"],
    "constrain": ["text"],  # of it only UTF-8
    "model": ["backend"],
    "store": ["io", "tensor", "model"],
    "vision": ["backend"],
    "plan": ["model", "store", "text"],  # of these only the numbers
    "checkpoint": ["store", "tensor", "text"],
    "convert": ["checkpoint"],
    "engine": ["plan", "model", "store", "checkpoint", "text", "vision", "io"],
    "api": ["engine", "convert"],
    # Front ends are users of the library like any other: the public header and nothing below it. The server
    # adds arenas, threads and JSON, which the program links anyway.
    "server": ["text", "constrain"],
    "cli": [],
    "serve": ["server", "cli"],  # the server's program
}
PUBLIC_FOR = {"api", "server", "cli", "serve"}  # folders that may include sluice.h
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def below(folder):
    """The folder and everything that it stands on, directly or not."""
    seen, todo = set(), [folder]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += STANDS_ON[at]
    return seen


def check(root):
    src = root / "src"
    problems = []
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".inc")):
        folder = path.relative_to(src).parts[0]
        name = path.relative_to(root)
        if folder not in STANDS_ON:
            problems.append(f"{name}: '{folder}' has no floor in check_floors.py")
            continue
        for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if target == "sluice/status.h":
                continue
            if target == "sluice.h":
                if folder not in PUBLIC_FOR:
                    problems.append(f"{name}: includes sluice.h, which is for front ends")
            elif (src / target).is_file():
                if target.split("/")[0] not in below(folder):
                    problems.append(f"{name}: includes {target}, which '{folder}' does not stand on")
            elif (path.parent / target).is_file():
                problems.append(f"{name}: write {target} as its path below src/")
            else:
                problems.append(f"{name}: includes {target}, which is not there")
    return problems


def self_test():
    cases = [
        ("io/file.h", '#include "base/mem.h"', None),
        ("engine/engine.c", '#include "base/mem.h"', None),
        ("cli/main.c", '#include "sluice.h"', None),
        ("base/mem.c", '#include "io/file.h"', "does not stand on"),
        ("io/file.c", '#include "tensor/dtype.h"', "does not stand on"),
        ("cli/main.c", ' #  include "base/mem.h"', "does not stand on"),
        ("engine/engine.c", '#include "sluice.h"', "for front ends"),
        ("attic/old.c", "", "no floor"),
        ("base/mem.c", '#include "mem.h"', "path below src/"),
        ("base/mem.c", '#include "base/nothing.h"', "not there"),
    ]
    for file, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for header in ("base/mem.h", "io/file.h", "tensor/dtype.h", file):
                path = root / "src" / header
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text if header == file else "", encoding="utf-8")
            found = check(root)
        right = not found if expected is None else len(found) == 1 and expected in found[0]
        if not right:
            sys.exit(f"self-test: {file} with {text!r}: expected {expected!r}, found {found}")
    print(f"self-test: {len(cases)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
    problems = check(root)
    print("\n".join(problems) if problems else "all includes point down")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
