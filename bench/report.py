"""What was measured, as numbers, as a table for a terminal, as JSON, and as docs/BENCHMARKS.md."""

import json
import os
import platform
import statistics
import subprocess
import textwrap


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


class Case:
    """One question: a row for each contender, and the targets that are judged by the rows' ratios."""

    def __init__(self, name, title, unit, baseline, higher_is_better=False, note=None):
        self.name, self.title, self.unit, self.baseline = name, title, unit, baseline
        self.higher_is_better, self.note = higher_is_better, note
        self.rows, self.targets, self.missing, self.failures = {}, [], {}, {}

    def add(self, contender, values):
        self.rows[contender] = {"n": len(values), "min": min(values), "p50": statistics.median(values),
                                "p95": percentile(values, 0.95), "p99": percentile(values, 0.99), "max": max(values)}

    def lacks(self, contender, reason):
        self.missing[contender] = reason

    def ratio(self, contender, against):
        if contender not in self.rows or against not in self.rows or not self.rows[against]["p50"]:
            return None
        return self.rows[contender]["p50"] / self.rows[against]["p50"]

    def target_at_most(self, contender, limit, against):
        ratio = self.ratio(contender, against)
        self._target(f"{contender} at most {limit:g} × {against}", ratio, limit, ratio is not None and ratio <= limit)

    def target_faster(self, contender, factor, against):
        ratio = self.ratio(against, contender)
        self._target(f"{contender} at least {factor:g} × faster than {against}", ratio, factor,
                     ratio is not None and ratio >= factor)

    def target_at_least(self, contender, factor, against):
        """For rates, where more is better."""
        ratio = self.ratio(contender, against)
        self._target(f"{contender} at least {factor:g} × {against}", ratio, factor,
                     ratio is not None and ratio >= factor)

    def target_value(self, contender, limit):
        """The median itself, in the unit of the case."""
        value = self.rows[contender]["p50"] if contender in self.rows else None
        self._target(f"{contender} at most {limit:g} {self.unit}", value, limit, value is not None and value <= limit)

    def target_tail(self, contender, factor):
        """The ninety-ninth percentile against the median."""
        row = self.rows.get(contender)
        ratio = row["p99"] / row["p50"] if row else None
        self._target(f"{contender}: p99 at most {factor:g} × p50", ratio, factor, ratio is not None and ratio <= factor)

    def _target(self, text, measured, limit, met):
        self.targets.append({"text": text, "measured": measured, "limit": limit,
                             "met": None if measured is None else met})

    def as_json(self):
        rows = [{"contender": name, **row, "ratio": self.ratio(name, self.baseline)} for name, row in self.rows.items()]
        missing = [{"contender": name, "reason": reason} for name, reason in self.missing.items()]
        failures = [{"contender": name, "runs": len(said), "first": said[0]} for name, said in self.failures.items()]
        return {"name": self.name, "title": self.title, "unit": self.unit, "baseline": self.baseline,
                "higher_is_better": self.higher_is_better, "note": self.note, "rows": rows, "missing": missing,
                "failures": failures, "targets": self.targets}


def read_first(path, key):
    try:
        with open(path, encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)
    except OSError:
        return None


def machine():
    memory = read_first("/proc/meminfo", "MemTotal") or "0 kB"
    hypervisor = " hypervisor" in (read_first("/proc/cpuinfo", "flags") or "")
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        cgroup = "v2"
    else:
        cgroup = "v1, hybrid" if os.path.isdir("/sys/fs/cgroup/unified") else "v1"
    return {
        "processor": read_first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory.split()[0]) / (1 << 20), 1),
        "virtual_machine": hypervisor,
        "kernel": f"{platform.system()} {platform.release()}",
        "system": (read_first_release() or "unknown"),
        "cgroup": cgroup,
        "load": round(os.getloadavg()[0], 2),
        "user": "root" if os.geteuid() == 0 else "ordinary user",
    }


def read_first_release():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def commit(folder):
    shown = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, text=True,
                           check=False)
    return shown.stdout.strip() or None


def write_json(path, report):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as out:
        json.dump(report, out, indent=2, ensure_ascii=False)
        out.write("\n")
    os.replace(temporary, path)


def number(value):
    if value is None:
        return "–"
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def verdict(target):
    if target["met"] is None:
        return "not measured"
    return "met" if target["met"] else "MISSED"


HEADER = ["contender", "n", "min", "p50", "p95", "p99", "ratio"]


def table_rows(case):
    for row in case["rows"]:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.3f}"
        times = [number(row[name]) for name in ("min", "p50", "p95", "p99")]
        yield [row["contender"], str(row["n"]), *times, ratio]
    for row in case["missing"]:
        yield [row["contender"], *["–"] * (len(HEADER) - 1)]


def as_text(report):
    lines = []
    for case in report["cases"]:
        lines += ["", f"{case['name']}: {case['title']} ({case['unit']}; ratio to {case['baseline']})"]
        rows = [HEADER, *table_rows(case)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
        for row in rows:
            lines.append("  " + row[0].ljust(widths[0]) + "".join(
                "  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:])))
        lines += [f"  {row['contender']} not measured: {row['reason']}" for row in case["missing"]]
        lines += [f"  {row['contender']} FAILED in {row['runs']} runs: {row['first']}" for row in case["failures"]]
        lines += [f"  {line}" for line in textwrap.wrap(case["note"] or "", 116, break_on_hyphens=False)]
        lines += [f"  [{verdict(target)}] {target['text']}: {number(target['measured'])}" for target in case["targets"]]
    return "\n".join(lines) + "\n"


def as_markdown(report, plot=None):
    """docs/BENCHMARKS.md. Everything in it comes from the JSON file; nothing is written by hand."""
    host = report["machine"]
    kind = "virtual machine" if host["virtual_machine"] else "machine"
    lines = [
        "# Benchmarks",
        "",
        "This page is written by `bench/run.py --write-docs` from the last run of `make bench`. The times belong to",
        "the machine below; compare the ratios. Within each case the contenders take turns, run by run or slice by",
        "slice, so that a slow moment falls on all of them. A run is timed from the spawn until its output has ended",
        "and it has been waited for; through the server, from the request until its answer has been read.",
        "",
        f"- Machine: {host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, {kind}; {host['system']}, "
        f"{host['kernel']}, cgroup {host['cgroup']}; as {host['user']}; load {host['load']} before the run",
        f"- hotcell: {report['commit'] or 'unknown commit'}; measured {report['date']}",
        f"- Command: `{report['command']}`",
        "",
        "## Targets",
        "",
        "| target | measured | |",
        "| --- | ---: | --- |",
    ]
    for case in report["cases"]:
        for target in case["targets"]:
            lines.append(f"| {case['title']}: {target['text']} | {number(target['measured'])} | {verdict(target)} |")
    if plot:
        lines += ["", f"![The time of a run as a multiple of the bare program's, and the target of each]({plot})", "",
                  "The time of a run as a multiple of the bare program's, on a scale of powers of ten; the mark is the",
                  "target."]
    for case in report["cases"]:
        lines += ["", f"## {case['title'][0].upper()}{case['title'][1:]}", "",
                  f"In {case['unit']}; ratio of the medians, to {case['baseline']}."
                  + (" More is better." if case["higher_is_better"] else ""), "",
                  *([*textwrap.wrap(case["note"], 112, break_on_hyphens=False), ""] if case["note"] else []),
                  "| " + " | ".join(HEADER) + " |", "| --- |" + " ---: |" * (len(HEADER) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in table_rows(case)]
        lines += [f"\n{row['contender']} was not measured: {row['reason']}" for row in case["missing"]]
        lines += [f"\n{row['contender']} failed in {row['runs']} runs: {row['first']}" for row in case["failures"]]
    if report["contenders"]:
        lines += ["", "## Contenders", ""]
    for contender in report["contenders"]:
        what = f"- **{contender['name']}**: {contender['note']}."
        if not contender["available"]:
            what += f" Could not be had: {contender['reason']}"
        elif contender["version"]:
            what += f" Version: {contender['version']}."
        lines.append(what)
    return "\n".join(lines) + "\n"
