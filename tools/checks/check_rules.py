#!/usr/bin/env python3
"""Rules of the house that a reader of one line can check, so that a machine does.

usage: check_rules.py [ROOT]       check the sources below ROOT/src
       check_rules.py --self-test  show that each rule can fail

Comments and string literals are blanked first: prose may speak of malloc.
"""
import pathlib
import re
import sys
import tempfile

FRONT = ("cli/", "server/", "serve/")  # programs: they print, exit and have a heap of their own

# what is looked for, paths below src/ that may do it, and why others may not
RULES = [
    (r"\b(?:malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|strndup|asprintf)\s*\(",
     ("base/mem.c",) + FRONT, "the heap is base/mem.c's: every byte has an account"),
    (r"\bfree\s*\(", ("base/mem.c",) + FRONT, "blocks go back to base/mem.c"),
    (r"\b(?:printf|puts|putchar|perror|vprintf)\s*\(|\bf(?:printf|puts|write)\s*\([^;]*\bstd(?:out|err)\b",
     FRONT, "the library never prints"),
    (r"\b(?:exit|_exit|_Exit|quick_exit)\s*\(", FRONT, "the library never ends the process"),
    (r"\babort\s*\(", ("base/mem.c",) + FRONT, "the library never aborts; mem.c does in SL_SEAL_TRAP builds"),
    (r"\b(?:signal|sigaction)\s*\(", FRONT, "the library installs no signal handlers"),
    (r"\bgetenv\s*\(", ("api/",) + FRONT, "settings are parameters, not environment variables"),
    (r"_GNU_SOURCE|__linux__|__APPLE__|_WIN32", ("base/", "io/"),
     "operating systems are known in base/ and io/ alone"),
    (r"\b(?:gets|strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|alloca)\s*\(", (),
     "no bound, no error, or hidden state"),
]
TOKENS = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])*'""", re.S)


def code_only(text):
    """The text with comments and the insides of strings blanked; lines stay where they are."""
    def blank(match):
        if match["comment"] or match["string"]:
            return re.sub(r"[^\n]", " ", match[0])
        return match[0]
    return TOKENS.sub(blank, text)


def check(root):
    src = root / "src"
    problems = []
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".inc")):
        name = path.relative_to(src).as_posix()
        code = code_only(path.read_text(encoding="utf-8"))
        for pattern, allowed, why in RULES:
            if not name.startswith(allowed):
                for match in re.finditer(pattern, code):
                    line = code.count("\n", 0, match.start()) + 1
                    problems.append(f"src/{name}:{line}: {match[0].strip()}: {why}")
    return problems


def self_test():
    cases = [
        ("base/mem.c", "p = malloc(n);", True),
        ("io/file.c", "p = malloc(n);", False),
        ("io/file.c", "sl_mem_free(p); /* not free() */ // nor malloc(1)", True),
        ("io/file.c", 's = "malloc(1)"; c = \'"\'; t = "x";', True),
        ("io/file.c", "free (p);", False),
        ("text/t.c", "fprintf(stderr, \"x\");", False),
        ("text/t.c", "snprintf(out, cap, \"x\");", True),
        ("text/t.c", "printf(\"x\");", False),
        ("cli/main.c", "printf(\"x\"); exit(1); p = malloc(1);", True),
        ("engine/e.c", "exit(1);", False),
        ("engine/e.c", "abort();", False),
        ("engine/e.c", "sigaction(SIGINT, &sa, NULL);", False),
        ("engine/e.c", "e = getenv(\"X\");", False),
        ("engine/e.c", "#define _GNU_SOURCE", False),
        ("cli/main.c", "strcpy(a, b);", False),
    ]
    for name, text, clean in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "src" / name
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            found = check(pathlib.Path(folder))
        if (not found) != clean:
            sys.exit(f"self-test: {name} with {text!r}: found {found}")
    print(f"self-test: {len(cases)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
    problems = check(root)
    print("\n".join(problems) if problems else "all rules hold")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
