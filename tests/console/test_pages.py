"""How the console's files are served: what is there, under which policy, and that they are what the wheel has."""

import base64
import hashlib
import re
from pathlib import Path

import httpx
import pytest
from starlette.exceptions import HTTPException

from pixiu.console import Pages, console_pages
from pixiu.console.pages import STATIC


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text(
        '<script type="importmap">{"imports": {}}</script><script src="/a.js"></script>'
    )
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.css").write_text("b {}")
    (tmp_path / "notes.swp").write_text("not for others")
    return tmp_path


async def get(pages: Pages, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, headers=headers)


async def test_files_have_their_type_and_are_asked_for_again(folder: Path) -> None:
    pages = Pages(folder)
    front = await get(pages, "/")
    assert (front.status_code, front.headers["content-type"]) == (200, "text/html; charset=utf-8")
    style = await get(pages, "/sub/b.css")
    assert (style.text, style.headers["content-type"]) == ("b {}", "text/css; charset=utf-8")
    assert style.headers["cache-control"] == "no-cache"
    again = await get(pages, "/sub/b.css", **{"If-None-Match": style.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", style.headers["etag"])
    assert (await get(pages, "/sub/b.css", **{"If-None-Match": '"other"'})).status_code == 200
    head = await get(pages, "/a.js", method="HEAD")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "1", b"")


async def test_a_file_that_changes_is_read_again_and_one_that_goes_stays(folder: Path) -> None:
    pages = Pages(folder)
    before = await get(pages, "/a.js")
    (folder / "a.js").write_text("22")
    after = await get(pages, "/a.js")
    assert (after.text, after.headers["etag"] == before.headers["etag"]) == ("22", False)
    (folder / "a.js").unlink()
    assert (await get(pages, "/a.js")).text == "22"
    (folder / "index.html").write_text("<script>2</script>")
    policy = pages.policy
    await get(pages, "/")
    assert pages.policy != policy


@pytest.mark.parametrize("path", ["/b.css", "/sub", "/sub/", "/notes.swp", "/%2e%2e/a.js", "/a.js/", "/%2e%2e/x"])
async def test_nothing_else_is_there(folder: Path, path: str) -> None:
    with pytest.raises(HTTPException) as refused:
        await get(Pages(folder), path)
    assert refused.value.status_code == 404


async def test_files_are_only_read(folder: Path) -> None:
    with pytest.raises(HTTPException) as refused:
        await get(Pages(folder), "/a.js", method="POST")
    assert (refused.value.status_code, refused.value.headers) == (405, {"Allow": "GET, HEAD"})


def test_of_inline_scripts_only_those_of_the_page_may_run(folder: Path) -> None:
    digest = base64.b64encode(hashlib.sha256(b'{"imports": {}}').digest()).decode()
    directives = dict(each.strip().split(" ", 1) for each in Pages(folder).policy.split(";"))
    assert directives == {
        "default-src": "'self'",
        "script-src": f"'self' 'sha256-{digest}'",
        "style-src": "'self'",
        "img-src": "'self' data: http: https:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


async def test_the_console_says_what_kind_of_server_it_is() -> None:
    answer = await get(console_pages(is_dev=True, node="n1"), "/console.json")
    assert (answer.json()["dev"], answer.json()["node"], answer.json()["cluster"]) == (True, "n1", False)
    gateway = await get(console_pages(is_dev=False, is_cluster=True), "/console.json")
    assert gateway.json()["cluster"] is True
    assert answer.headers["cache-control"] == "no-store"


def test_every_file_that_a_page_asks_for_is_there() -> None:
    asked = re.compile(r"""(?:from|import|import\(|href=|src=)\s*['"](/[\w./-]+)['"]""")
    for path in [*STATIC.rglob("*.js"), STATIC / "index.html"]:
        for name in asked.findall(path.read_text(encoding="utf-8")):
            assert (STATIC / name[1:]).is_file(), f"{path.name} asks for {name}"


def test_no_colour_is_named_outside_the_tokens() -> None:
    for path in (STATIC / "styles").glob("*.css"):
        if path.name != "tokens.css":
            found = [
                each for each in re.findall(r"#[0-9a-fA-F]{3,8}\b", path.read_text(encoding="utf-8"))
                if each.lower() not in ("#fff",) and not each.lower().startswith(("#0b1210", "#17211e"))
            ]  # fmt: skip
            assert not found, f"{path.name}: {found}"


def test_vendored_files_come_with_version_and_licence() -> None:
    table = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    for path in (STATIC / "vendor").iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in table, path.name
    assert "uPlot" in (STATIC / "vendor" / "uplot.mjs").read_text(encoding="utf-8")[:400]
