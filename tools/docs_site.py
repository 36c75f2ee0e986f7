"""What the documentation's site needs beyond mkdocs: links to the source, and the decisions.

mkdocs calls these functions while it builds the site (`make docs`). They read the pages and the
list of decisions, and write the scripts of the site that mkdocs leaves on a server: one for the
search, and one that draws diagrams, on the pages that have some.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from shutil import copyfile
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")
_SCRIPT = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')
"""Lets the search work in a site that is opened as files."""
_SCRIPT_FILE = Path("build/tools/node_modules/iframe-worker/shim/index.js")
_SCRIPT_PLACE = PurePosixPath("assets/javascripts/iframe-worker.js")
_DIAGRAM = '<pre class="mermaid">'
_DIAGRAM_FILE = Path("build/tools/node_modules/mermaid/dist/mermaid.min.js")
_DIAGRAM_PLACE = PurePosixPath("assets/javascripts/mermaid.min.js")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Add the decisions to the navigation, by number."""
    folder = Path(config["docs_dir"])
    decisions = sorted(f"adr/{path.name}" for path in (folder / "adr").glob("*.md"))
    contributing = next(part["Contributing"] for part in config["nav"] if "Contributing" in part)
    contributing.append({"Decisions": decisions})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Say where in the source a file is that is not part of the site."""
    place = PurePosixPath(page.file.src_uri).parent
    parts = _FENCE.split(markdown)
    # Every second part is a block of code.
    parts[::2] = [_LINK.sub(lambda found: _shown(found, place), part) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load the scripts from the site, or not at all.

    Without the first, the search works only on a web server; without the second, diagrams are
    shown as they are written.
    """
    above = "../" * page.file.dest_uri.count("/")
    if _DIAGRAM in output:
        if _is_there(config, _DIAGRAM_FILE):
            script = f'<script src="{above}{_DIAGRAM_PLACE}"></script>'
            output = output.replace("</head>", f"{script}</head>", 1)
        else:
            output = output.replace(_DIAGRAM, "<pre>")
    if not _is_there(config, _SCRIPT_FILE):
        return _SCRIPT.sub("", output)
    return _SCRIPT.sub(f'<script src="{above}{_SCRIPT_PLACE}"></script>', output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Leave the script out of the page that a web server shows for what is not there."""
    del template_name, config
    return _SCRIPT.sub("", output_content)


def on_post_build(config: Any) -> None:
    """Copy the scripts."""
    for script, place in ((_SCRIPT_FILE, _SCRIPT_PLACE), (_DIAGRAM_FILE, _DIAGRAM_PLACE)):
        if _is_there(config, script):
            copyfile(_path(config, script), Path(config["site_dir"]) / place)


def _is_there(config: Any, script: Path) -> bool:
    return _path(config, script).is_file()


def _path(config: Any, script: Path) -> Path:
    return Path(config["config_file_path"]).parent / script


def _shown(link: re.Match[str], place: PurePosixPath) -> str:
    """Return a link as it is if its target is a page, or else its text and the path."""
    target = normpath(place / link[2])
    if not target.startswith("../"):
        return link[0]
    text, path = link[1], target.removeprefix("../")
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"
