"""Every program of the corpus is run for real, and its diagnosis says what its case expects: no less, and nothing else."""

import concurrent.futures
import pathlib
import tomllib

import pytest

CORPUS = pathlib.Path(__file__).parent / "corpus"
CATEGORIES = {"syntax", "exception", "import", "compile", "signal", "timeout", "memory", "pids", "disk", "output", "permission", "network"}
LANGUAGES = {"bash", "c", "cpp", "go", "java", "javascript", "lua", "perl", "php", "python", "r", "ruby", "rust", "sh", "typescript"}
FIELDS = {"category", "error_type", "message", "file", "line", "column", "source", "hint", "evidence", "fingerprint"}


class Case:
    def __init__(self, path):
        head, _, self.code = path.read_text().partition("\n---\n")
        self.language, self.name = path.parent.name, f"{path.parent.name}/{path.stem}"
        self.expect = tomllib.loads(head)
        self.category = None if self.expect["category"] == "unknown" else self.expect["category"]

    def request(self):
        return {"language": self.language, "code": self.code, **{key: self.expect[key] for key in ("limits", "stages") if key in self.expect}}

    def faults(self, result):
        """What is wrong with the diagnosis: nothing, if all is well."""
        diagnosis = result.get("diagnosis")
        if not diagnosis:
            return [f"no diagnosis: {result}"]
        wrong = [] if set(diagnosis) == FIELDS else [f"fields {sorted(diagnosis)}"]
        wanted = {key: self.expect[key] for key in ("error_type", "file", "line", "column") if key in self.expect}
        wanted["category"] = self.category
        if "line" in wanted:
            wanted["source"] = (self.code.splitlines() + [None])[wanted["line"] - 1]
            wanted["source"] = wanted["source"].rstrip() if wanted["source"] else None
        wrong += [f"{key} is {diagnosis[key]!r}, not {value!r}" for key, value in wanted.items() if diagnosis[key] != value]
        if self.expect.get("message", "") not in diagnosis["message"]:
            wrong.append(f"message is {diagnosis['message']!r}")
        proof = diagnosis["evidence"]
        wrong += [f"evidence.{key} is {proof.get(key)!r}, not {value!r}" for key, value in self.expect.get("evidence", {}).items() if proof.get(key) != value]
        if not proof:
            wrong.append("no evidence")
        if (diagnosis["hint"] is None) != (self.category is None):
            wrong.append(f"hint is {diagnosis['hint']!r}")
        return wrong


CASES = [Case(path) for path in sorted(CORPUS.rglob("*.case"))]


@pytest.fixture(scope="module")
def results(server):
    """All of them, two at a time."""

    def run(case):
        answer = server.run(within=120, **case.request())
        assert answer.status == 200, (case.name, answer)
        return answer.json

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield dict(zip([case.name for case in CASES], pool.map(run, CASES)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_failing_program_is_diagnosed(case, results):
    result = results[case.name]
    assert result["status"] != "completed", result
    assert case.faults(result) == [], (result["diagnosis"], result["stderr"][-2000:])


def test_the_corpus_has_every_language_and_category():
    assert len(CASES) >= 120
    assert {case.category for case in CASES} == CATEGORIES | {None}
    assert {case.language for case in CASES} == LANGUAGES
    for language in LANGUAGES:
        assert {"exception", None} <= {case.category for case in CASES if case.language == language}, language
        assert sum(case.language == language for case in CASES) >= 8, language


def test_the_same_failure_has_the_same_fingerprint_and_another_has_not(results):
    def fingerprint(name):
        return results[name]["diagnosis"]["fingerprint"]

    assert fingerprint("r/stop") == fingerprint("r/in_function")  # the same words of the same error
    assert fingerprint("python/missing_module_packaged") != fingerprint("python/missing_module_unknown")
    assert fingerprint("python/zero_division") != fingerprint("ruby/zero_division")
