"""Documents stay true: links resolve, tables match the code, named tests and paths exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.config import key_types, sections
from pixiu.im import VERBS
from pixiu.im.content import CONTENT
from tools import make_dashboards, make_features, make_reference

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

# fmt: off
SMSS_KEYS = (
    "port", "log.path", "log.sample", "log.withGid", "log.rotate.maxSize", "log.rotate.maxBackups",
    "log.rotate.maxAge", "store.path", "store.maxLogSize", "store.flushLevel", "store.maxDays",
    "store.clearInterval", "store.waitDelLockTimeoutMs", "store.noCache", "store.folderCount",
    "worker.buffSize", "worker.waitMsgTimeout", "worker.waitMsgTimeoutLogSample", "timeout.net.write",
    "timeout.server.alive", "background.defaultScanSecond", "background.firstExecSecond",
)
TARGETS = (
    "help", "setup", "setup-pipeline", "serve", "test", "check", "format", "test-long", "test-fresh", "test-engines",
    "fuzz", "demo", "bench",
    "bench-queue", "bench-core", "bench-gateway", "bench-pipeline", "bench-cluster", "bench-engines", "bench-ab",
    "docs", "proto", "lock", "clean",
)
# fmt: on
NAMES_PATHS = (
    "docs/origins.md",
    "docs/dependencies.md",
    "docs/testing.md",
    "docs/architecture.md",
    "docs/STATUS.md",
)
PATH = r"`((?:src|tests|tools|docs|examples|benchmarks|requirements)/[^`\s]*)`"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        resolved = (document.parent / path).resolve() if path else document
        assert resolved.exists(), f"{document.name} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", resolved.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("name", NAMES_PATHS)
def test_every_path_that_is_named_exists(name: str) -> None:
    paths = re.findall(PATH, text_of(name))
    assert paths
    for path in paths:
        assert list(ROOT.glob(path)) if "*" in path else (ROOT / path).exists(), f"{name} names {path}"


def defined_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }


def test_every_test_named_in_the_guarantees_exists() -> None:
    names = set(re.findall(r"`(test_\w+)`", text_of("docs/guarantees.md")))
    assert names
    assert names <= defined_tests(), sorted(names - defined_tests())


@pytest.mark.parametrize(
    "name", ["docs/guarantees.md", "docs/messaging.md", "docs/origins.md", "docs/operations.md", "README.md"]
)
def test_every_setting_named_in_a_document_exists(name: str) -> None:
    known = sections()
    for section, key in re.findall(r"`([a-z]+)\.([a-z_]+)(?: = [^`]*)?`", without_code(text_of(name))):
        if section in known and f"{section}.{key}" not in SMSS_KEYS:
            assert key in key_types(known[section]), f"{name} names {section}.{key}"


def table_rows(text: str, heading: str) -> dict[str, str]:
    """Second cells by first cells of the table with this heading."""
    table = text.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (.+?) \| (.*?) \|", table, flags=re.MULTILINE))


def test_every_action_and_every_param_of_it_is_documented() -> None:
    text = text_of("docs/messaging.md")
    content = {name for cell in table_rows(text, "content") for name in re.findall(r"`(\w+)`", cell)}
    assert content == CONTENT
    actions = {name.strip("`"): params for name, params in table_rows(text, "action").items() if name.startswith("`")}
    assert actions.keys() == VERBS.keys()
    for name, verb in VERBS.items():
        named = set(re.findall(r"`(\w+)`", actions[name]))
        assert named | (content if "*content*" in actions[name] else set()) == verb.params, name


def test_every_limit_of_messaging_is_documented() -> None:
    limits = text_of("docs/messaging.md").partition("\n## Limits\n")[2].partition("\n## ")[0]
    for key in key_types(sections()["messaging"]):
        assert f"`messaging.{key}`" in limits or key == "forward_gap_ms", key


def test_the_settings_and_metrics_tables_are_up_to_date() -> None:
    assert make_reference.main(["--check"]) == 0, "run: make docs"


def test_the_features_table_is_up_to_date() -> None:
    assert make_features.main(["--check"]) == 0, "run: make docs"


def test_the_dashboard_and_the_alerts_are_up_to_date_and_name_metrics_that_exist() -> None:
    assert make_dashboards.main(["--check"]) == 0, "run: make docs"
    assert make_dashboards.unknown(["rate(pixiu_queue_events_total[5m]) / pixiu_queue_wishes_total"]) == {
        "pixiu_queue_wishes_total"
    }
    yaml = pytest.importorskip("yaml")
    alerts = yaml.safe_load(text_of("deploy/prometheus/alerts.yaml"))
    assert [rule["alert"] for rule in alerts["groups"][0]["rules"]] == [
        each.name for each in make_dashboards.ALERTS_WANTED
    ]


def test_the_features_table_has_every_id() -> None:
    text = text_of("docs/features.md")
    expected = [f"W{number:02d}" for number in range(1, 41)]
    counts = {"QA": 8, "QB": 10, "QC": 7, "QD": 3, "QE": 6, "QF": 2}
    expected += [f"{letters}{number}" for letters, count in counts.items() for number in range(1, count + 1)]
    for letter, count in {"E": 60, "C": 38, "T": 8}.items():
        expected += [f"{letter}{number}" for number in range(1, count + 1)]
    for letter, count in {"P": 29, "R": 22, "B": 23, "X": 75}.items():
        expected += [f"{letter}{number:02d}" for number in range(1, count + 1)]
    for id_ in [*expected, "QG"]:
        assert f"\n| {id_} | " in text, id_


def test_an_id_names_the_suite_that_runs_its_tests_and_has_a_test_or_a_reason() -> None:
    found = make_features.collect()
    for id_, tests in found.items():
        run_by = make_features.status(id_, found)
        assert run_by != "–" or make_features.note_of(id_), f"{id_} has neither a test nor a reason"
        assert ("`make test`" in run_by) == any(
            test.suite == "make test" for test in make_features.behind(id_, found)
        ), (id_, tests)
    engines = make_features.suite_of({"engines", "feature"}), make_features.suite_of({"engines", "long"})
    assert engines == ("make test-engines", "make test-long")


def test_a_mark_with_an_unknown_id_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_x.py").write_text('import pytest\n\n@pytest.mark.feature("W99")\ndef test_x(): ...\n')
    monkeypatch.setattr(make_features, "TESTS", tmp_path)
    monkeypatch.setattr(make_features, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="W99"):
        make_features.collect()


def test_marks_are_found_on_functions_classes_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_x.py").write_text(
        'import pytest\npytestmark = [pytest.mark.feature("W01"), pytest.mark.long]\n'
        '@pytest.mark.feature("W02", "QG")\nasync def test_a(): ...\n'
        'class TestB:\n    @pytest.mark.feature("W03")\n    def test_c(self): ...\n'
        "def helper(): ...\n"
    )
    monkeypatch.setattr(make_features, "ROOT", tmp_path)
    found = list(make_features.tests_of(tmp_path / "test_x.py"))
    assert [(test.name, test.ids, test.suite) for test in found] == [
        ("test_a", ("QG", "W01", "W02"), "make test-long"),
        ("TestB::test_c", ("W01", "W03"), "make test-long"),
    ]


def smss_rows() -> dict[str, tuple[str, str, str]]:
    table = text_of("docs/operations.md").partition("### Coming from smss")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.*?) ?\| (\S+) \|$", table, flags=re.MULTILINE)
    return {smss: (pixiu, note, test) for smss, pixiu, note, test in rows}


def test_every_key_of_smss_has_a_name_and_a_test_here_or_a_reason() -> None:
    rows = smss_rows()
    assert sorted(rows) == sorted(SMSS_KEYS)
    for smss, (pixiu, note, test) in rows.items():
        if pixiu == "–":
            assert note.startswith("not needed: "), smss
            continue
        assert test.strip("`") in defined_tests(), smss
        if pixiu != "`--data`":
            section, _, key = pixiu.strip("`").partition(".")
            assert key in key_types(sections()[section]), f"{smss} -> {pixiu}"


def test_plain_make_lists_every_target() -> None:
    output = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = [line.split()[0] for line in output.splitlines() if line.startswith("  ")]
    assert listed == list(TARGETS)


def test_no_file_names_a_registry_or_a_package_host() -> None:
    for path in (ROOT / "requirements").iterdir():
        assert "://" not in path.read_text(encoding="utf-8"), path.name
        assert "--index-url" not in path.read_text(encoding="utf-8"), path.name


def test_every_requirement_has_a_hash_and_every_package_is_explained() -> None:
    explained = text_of("docs/dependencies.md")
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        for entry in re.split(r"\n(?=\w)", path.read_text(encoding="utf-8")):
            assert re.match(r"[\w.\-\[\]]+==\S+", entry), entry
            assert "--hash=sha256:" in entry, entry
    for path in sorted((ROOT / "requirements").glob("*.in")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(("#", "-r", "-c")):
                name = re.split(r"[\[<>=; ]", line)[0]
                assert re.search(rf"\b{re.escape(name)}\b", explained), f"{name} is not explained"


def test_importing_pixiu_is_cheap() -> None:
    code = "import sys, pixiu; print([m for m in ('asyncio', 'typer', 'rocksdict') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


def test_nothing_that_is_kept_names_a_place_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    kept = [Path(name) for name in listed.stdout.decode().split("\0") if name]
    top = {path.parts[0] for path in kept if len(path.parts) > 1}
    assert top == {".ci", "benchmarks", "deploy", "docs", "examples", "requirements", "src", "tests", "tools"}
    here = str(ROOT).encode()
    assert [str(path) for path in kept if (ROOT / path).is_file() and here in (ROOT / path).read_bytes()] == []
