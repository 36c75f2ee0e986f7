"""The documentation's site is built without a warning, is whole, and needs no other server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environ import ROOT

LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="?(https?://[^\s"'>]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site."""
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    return folder


def test_every_page_is_part_of_it(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        built = site / (name.with_name("index.html") if name.stem == "README" else name)
        assert built.is_file(), f"{page} is not there"
        assert 'class="md-nav__link md-nav__link--active"' in built.read_text(), page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    found = {address for page in pages for address in LOADED.findall(page.read_text())}
    assert found == set()


def test_the_search_finds_words_without_a_server(site: Path) -> None:
    assert "compare-and-set" in (site / "search" / "search_index.js").read_text()


def test_diagrams_are_drawn_by_a_script_of_the_site_or_shown_as_text(site: Path) -> None:
    page = (site / "concepts" / "how-it-works.html").read_text()
    has_script = (site / "assets/javascripts/mermaid.min.js").is_file()
    assert page.count('<pre class="mermaid">') == (3 if has_script else 0)
    assert ('src="../assets/javascripts/mermaid.min.js"' in page) == has_script
    assert "sequenceDiagram" in page


def test_links_to_the_source_say_where_it_is(site: Path) -> None:
    recipes = (site / "guides" / "recipes.html").read_text()
    assert "<code>examples/web.py</code>" in recipes
    assert "../../examples" not in recipes
