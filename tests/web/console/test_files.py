"""The files of the console: caching, the policy, and where / leads."""

import re
from pathlib import Path

from kwire.web.console.files import CONTENT_TYPES, POLICY, build
from tests.support.http import http_node
from tests.support.node import in_uvloop

FOLDER = Path(__file__).resolve().parents[3] / "kwire" / "web" / "pages" / "console"


@in_uvloop
async def test_every_path_below_the_console_shows_the_same_document(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        home = await http.get("/console")
        assert home.status == 200
        assert home.headers["Content-Security-Policy"] == POLICY
        assert "unsafe" not in POLICY
        assert home.headers["Cache-Control"] == "no-cache"
        below = await http.get("/console/topics/a%2Fb")
        assert below.body == home.body
        again = await http.get("/console", If_None_Match=home.headers["Etag"])
        assert (again.status, again.body) == (304, b"")


@in_uvloop
async def test_the_examples_have_the_policy_of_the_console(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        home = await http.get("/examples")
        assert (home.status, home.headers["Content-Security-Policy"]) == (200, POLICY)
        assert (await http.get("/examples/chat")).body == home.body
        for path in re.findall(r'"(/console/static/[^"]+)"', home.body.decode()):
            assert (await http.get(path)).status == 200, path


@in_uvloop
async def test_scripts_of_the_current_build_are_kept_by_browsers(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        document = (await http.get("/console")).body.decode()
        for path in re.findall(r'"(/console/static/[^"]+)"', document):
            answer = await http.get(path)
            assert answer.status == 200
            assert "immutable" in answer.headers["Cache-Control"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        # A page of an earlier build may still ask for its files; nobody may keep the answer.
        earlier = await http.get("/console/static/earlier/console.css")
        assert (earlier.status, earlier.headers["Cache-Control"]) == (200, "no-cache")


@in_uvloop
async def test_files_outside_of_the_folder_are_not_served(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        for path in (
            "nothing.js",
            "index.html",
            "examples/index.html",
            "..%2Fdocs.html",
            "%2E%2E/docs.html",
            "js",
            "/etc/passwd",
        ):
            answer = await http.get(f"/console/static/{build().name}/{path}")
            assert (answer.status, answer.code) == (404, "FileNotFound"), path


@in_uvloop
async def test_browsers_are_led_to_the_console_and_programs_to_the_description(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        browser = await http.get("/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert (browser.status, browser.headers["Location"]) == (302, "/console")
        program = await http.get("/", Accept="*/*")
        assert (program.status, program.headers["Location"]) == (302, "/docs")


def test_the_build_has_every_file_and_no_other() -> None:
    on_disk = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert {Path(name).suffix for name in on_disk} <= set(CONTENT_TYPES)
    assert set(build().files) == on_disk


def test_no_script_makes_markup_from_text_or_loads_from_elsewhere() -> None:
    for path in FOLDER.rglob("*"):
        if path.suffix in (".js", ".html", ".css"):
            text = path.read_text()
            found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
            assert found == [], path
            # The address is the name space of SVG; nothing is loaded from it.
            elsewhere = [one for one in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org" not in one]
            assert elsewhere == [], path


def test_every_import_of_a_script_leads_to_a_file() -> None:
    for path in FOLDER.rglob("*.js"):
        for target in re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", path.read_text()):
            assert (path.parent / target).is_file(), f"{path}: {target}"
