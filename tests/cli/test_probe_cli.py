"""``pixiu probe`` where nobody answers: what to try next depends on whether a secret was given."""

from pathlib import Path
from typing import Any

import pytest

from pixiu.cli import probe
from pixiu.cli.main import main


@pytest.mark.parametrize(
    "has_secret, said", [(False, "name it with --secret-file"), (True, "do they have this secret?")]
)
def test_without_a_path_it_asks_about_the_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, has_secret: bool, said: str
) -> None:
    async def nobody(*_: Any) -> dict[str, Any]:
        return {"paths": [], "alarms": []}

    monkeypatch.setattr(probe, "_probe", nobody)
    (tmp_path / "secret").write_text("a secret that is long enough\n")
    (tmp_path / "secret").chmod(0o600)
    more = ["--secret-file", str(tmp_path / "secret")] if has_secret else []
    with pytest.raises(SystemExit) as caught:
        main(["probe", "--registry", "zk://127.0.0.1:1/pubsub", *more])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
