"""Sphinx configuration of the documentation; build it with `make docs`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import rayfl  # noqa: E402  from the checkout

project = "rayfl"
author = "rayfl developers"
copyright = "2026, rayfl developers"
version = release = rayfl.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.extlinks",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "extensions.algorithm_cards",
    "extensions.algorithm_pages",
    "extensions.command_lines",
    "extensions.components",
    "extensions.data_cards",
    "extensions.mathml",
    "extensions.network_table",
    "extensions.offline",
    "extensions.papers",
    "extensions.python_api",
    "extensions.reference",
    "extensions.run_folder",
]
exclude_patterns = ["extensions", "records", "**/.ipynb_checkpoints"]
suppress_warnings = ["mystnb.unknown_mime_type", "myst-nb.lexer"]  # the language is known once a notebook has run
nitpicky = False

html_theme = "furo"
html_title = f"rayfl {release}"
html_show_sourcelink = False
html_theme_options = {
    "source_repository": "https://github.com/rayfl/rayfl/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_static_path = ["_static"]
html_css_files = ["pages.css"]
templates_path: list[str] = []

REPOSITORY = "https://github.com/rayfl/rayfl/blob/main"
extlinks = {"repo": (f"{REPOSITORY}/%s", "%s")}
"""{repo}`rayfl/models/flat.py` links to a file or folder of the repository; a test checks that it exists."""

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Notebooks are MyST Markdown, which Jupyter opens with jupytext. Each build runs the ones that have changed.
nb_execution_mode = "force"
nb_execution_in_temp = True  # their runs are left there
# The kernel is this build's Python, whatever kernels the machine knows; it does not warn that it listens on loopback.
os.environ["JUPYTER_PATH"] = str(HERE / "jupyter")
# generous: a machine may be busy
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
# widgets would load JavaScript from another server
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
