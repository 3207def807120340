"""Directives that generate the reference: `{scenario-keys} data`, and `{key}`, the description of one key."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.directives import ObjectDescription
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from extensions import scenario_keys
from extensions.generated import parsed

log = logging.getLogger(__name__)


class ScenarioKey(ObjectDescription[str]):
    """A key with an anchor for each of its paths; `` {key}`phases.N.local.lr` `` links to it."""

    option_spec: ClassVar[dict[str, Any]] = {**ObjectDescription.option_spec, "also": directives.unchanged}

    def handle_signature(self, sig: str, signode: addnodes.desc_signature) -> str:
        """Shows the path with its last part highlighted."""
        prefix, dot, name = sig.rpartition(".")
        signode += addnodes.desc_addname(prefix + dot, prefix + dot)
        signode += addnodes.desc_name(name, name)
        return sig

    def add_target_and_index(self, name: str, sig: str, signode: addnodes.desc_signature) -> None:
        """Registers all paths."""
        for path in [name, *self.options.get("also", "").split()]:
            signode["ids"].append(path)
            self.env.domains.standard_domain.note_object("key", path, path, location=signode)


class ScenarioKeys(SphinxDirective):
    """The keys of the sections with the given paths."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Parses the generated text as part of the page."""
        wanted = self.arguments[0].split()
        sections = [section for section, (path, page) in scenario_keys.PAGES.items() if (path or page) in wanted]
        text = "\n\n".join(scenario_keys.as_markdown(section) for section in sections)
        for section in sections:
            self.env.note_dependency(str(sys.modules[section.__module__].__file__))
        return parsed(self, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directives and the role."""
    app.add_object_type("key", "key", objname="scenario key")
    app.add_directive_to_domain("std", "key", ScenarioKey, override=True)
    app.add_directive("scenario-keys", ScenarioKeys)
    if missing := scenario_keys.undescribed():
        log.warning("scenario keys without a description: %s", ", ".join(missing))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
