"""The documentation site: `pip install '.[docs]' && sphinx-build -W -b html docs docs/_build`."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "switchpoint"
release = version = installed_version("switchpoint")
copyright = "the switchpoint authors"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "myst_nb",
    "drawings",
    "mathml",
    "playground_page",
    "public_api",
]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]
html_theme = "furo"
html_title = "switchpoint"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
# No script typesets mathematics: see mathml.py.
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# Notebooks are text without outputs: they are executed when the site is built, and again only when
# their code has changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / ".jupyter_cache")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
