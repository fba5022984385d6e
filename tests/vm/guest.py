"""Runs inside the test machine: pytest on what the host asked for, one line a test, and the counts to the second serial port.

No test can hold up the others: each has a time of its own, after which it has failed, and when the time of the whole machine is nearly over no
other test is begun. Those that were not reached are counted, and a machine that has such is not fine.
"""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

RESULTS = pathlib.Path("/dev/ttyS1")
LANGUAGES = "test_languages.py"
TEST_SECONDS = 40 * float(os.environ["HOTCELL_SLOW"])  # for one test; a case of the attack suite has its own time besides


def missing_languages():
    listed = subprocess.run([os.environ["HOTCELL"], "languages", "--json"], capture_output=True, text=True, check=True).stdout
    return {language["name"] for language in json.loads(listed) if not language["available"]}


def of_language(item, names):
    """Whether a test of test_languages.py is about one of these: by its parameters, or by its own name. One is about all of them."""
    if item.path.name != LANGUAGES or not names:
        return False
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    return bool(names & {str(value) for value in values} or names & set(item.originalname.split("_"))
                or "all_fifteen" in item.originalname)


class Report:
    """Says each test's outcome as it ends, and keeps the counts."""

    def __init__(self, deadline):
        self.deadline = deadline
        self.count = {"passed": 0, "failed": 0, "skipped": 0}
        self.failed = []
        self.skipped = {}
        self.collected = self.begun = 0

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config):
        config.pluginmanager.unregister(name="terminalreporter")

    def pytest_collection_modifyitems(self, config, items):
        """Languages that are not in the image have no tests here; on the host a missing one is a failure."""
        missing = missing_languages() if any(item.path.name == LANGUAGES for item in items) else set()
        left_out = [item for item in items if of_language(item, missing)]
        if left_out:
            print(f"vm: {len(left_out)} tests left out: {', '.join(sorted(missing))} are not in the image", flush=True)
        wanted = set(os.environ.get("VM_LANGUAGES", "").split())
        if wanted:
            left_out += [item for item in items if item not in left_out and not of_language(item, wanted)]
        if left_out:
            items[:] = [item for item in items if item not in left_out]
            config.hook.pytest_deselected(items=left_out)

    def pytest_collection_finish(self, session):
        self.collected = len(session.items)  # after what -m and -k leave out

    def pytest_collectreport(self, report):
        if report.failed:
            self.note(report, "failed")

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            # A failing teardown after a passed call is one more failure, never hidden by the pass.
            self.note(report, report.outcome)

    def pytest_runtestloop(self, session):
        """pytest's own loop, which looks at the clock before each test."""
        for at, item in enumerate(session.items):
            if time.monotonic() > self.deadline:
                print(f"vm: no time is left for {len(session.items) - at} tests, the first of them {item.nodeid}", flush=True)
                break
            self.begun += 1
            following = session.items[at + 1] if at + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        def too_late(*_):
            pytest.fail(f"no end after {TEST_SECONDS:.0f} s")

        before = signal.signal(signal.SIGALRM, too_late)
        signal.setitimer(signal.ITIMER_REAL, TEST_SECONDS)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    def note(self, report, outcome):
        self.count[outcome] += 1
        seconds = getattr(report, "duration", 0)
        print(f"  {self.begun:3}/{self.collected} {outcome:7} {seconds:6.1f} s  {report.nodeid}", flush=True)
        if outcome == "failed":
            self.failed.append(report.nodeid)
            print(report.longreprtext, *(text for _, text in report.sections), sep="\n", flush=True)
        elif outcome == "skipped":
            self.skipped[report.nodeid] = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            print(f"          {self.skipped[report.nodeid]}", flush=True)


def main():
    request = json.loads(pathlib.Path("/hotcell/vm-request.json").read_text())
    words = dict(word.split("=", 1) for word in pathlib.Path("/proc/cmdline").read_text().split() if "=" in word)
    plan = request[words["hc.variant"]]
    os.environ.update(plan["environment"])
    begin = time.monotonic()
    report = Report(begin + float(words["hc.seconds"]))
    arguments = ["-p", "no:cacheprovider", "--rootdir=/hotcell", *plan["tests"]]
    status = pytest.main(arguments, plugins=[report])
    facts = dict(report.count, status=int(status), collected=report.collected, left=report.collected - report.begun,
                 seconds=round(time.monotonic() - begin, 1), failures=report.failed, skips=report.skipped)
    RESULTS.write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
