#!/usr/bin/env python3
"""Counts what tools/check.sh did: every step, and every test inside the steps that have JUnit results.

usage: summary.py RESULTS       prints failures, skips with their reasons, and the totals as last line
       summary.py --self-test
Exits with 1 where anything failed, or where nothing ran.
"""
import pathlib
import sys
import tempfile
import xml.etree.ElementTree as ET


def tests_of(path):
    """(name, 'passed' | 'failed' | 'skipped', reason) of each test in a JUnit file."""
    for case in ET.parse(path).getroot().iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        if case.get("classname") == case.get("name"):  # ctest writes the name twice
            name = case.get("name")
        skipped, failed = case.find("skipped"), case.find("failure")
        if failed is None:
            failed = case.find("error")
        if failed is not None:
            yield name, "failed", failed.get("message") or ""
        elif skipped is not None:
            output = (case.findtext("system-out") or "").strip().splitlines()
            reason = skipped.get("message") or ""
            if case.get("status") == "notrun" and not reason.startswith("SKIP_"):
                yield name, "failed", reason  # ctest did not find the program
                continue
            # For ctest the message is its own; the reason is what the test printed last.
            yield name, "skipped", output[-1].strip() if output else reason
        else:
            yield name, "passed", ""


def collect(folder):
    results = []
    for line in (folder / "steps.tsv").read_text().splitlines():
        step, word, reason = line.split("\t")
        tests = []
        xml = folder / f"{step}.xml"
        if xml.is_file():
            try:
                tests = [(f"{step}: {name}", word, why) for name, word, why in tests_of(xml)]
            except ET.ParseError:
                tests = []
        # A step that failed without a failed test stopped in some other way, and counts itself.
        if not tests or (word == "FAILED" and all(w != "failed" for _, w, _ in tests)):
            tests.append((step, word.lower(), reason))
        results += tests
    return results


def report(results):
    for wanted in ("skipped", "failed"):
        chosen = [(name, why) for name, word, why in results if word == wanted]
        if chosen:
            print(f"{wanted}:")
            for name, why in chosen:
                print(f"  {name}" + (f": {why.splitlines()[0][:160]}" if why else ""))
    n = {word: sum(w == word for _, w, _ in results) for word in ("passed", "failed", "skipped")}
    print(f"{n['passed']} passed, {n['failed']} failed, {n['skipped']} skipped")
    return 1 if n["failed"] or not n["passed"] else 0


def self_test():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "steps.tsv").write_text(
            "floors\tpassed\t\nformat\tskipped\tother version\nunit\tFAILED\t\ncrash\tFAILED\t\n")
        (folder / "unit.xml").write_text(
            '<testsuite><testcase classname="a" name="a"/><testcase classname="b" name="b">'
            '<failure message="Failed"/></testcase><testcase classname="c" name="c">'
            '<skipped message="SKIP_RETURN_CODE=77"/><system-out>x\nno cgroup\n</system-out>'
            '</testcase><testcase classname="e" name="e" status="notrun">'
            '<skipped message="Unable to find executable"/></testcase></testsuite>')
        (folder / "crash.xml").write_text('<testsuite><testcase classname="d" name="d"/>')
        words = [(n, w, r) for n, w, r in collect(folder)]
    expected = [("floors", "passed", ""), ("format", "skipped", "other version"),
                ("unit: a", "passed", ""), ("unit: b", "failed", "Failed"),
                ("unit: c", "skipped", "no cgroup"),
                ("unit: e", "failed", "Unable to find executable"), ("crash", "failed", "")]
    if words != expected:
        sys.exit(f"self-test: expected {expected}, found {words}")
    print("self-test: 4 steps")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        sys.exit(report(collect(pathlib.Path(sys.argv[1]))))
