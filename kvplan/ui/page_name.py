"""What no option of the theme can say: a page's name as its one first heading, and letters that stand out on buttons.

The heading is for those who hear the page or walk it by its headings; on screen the navigation marks the page.
"""

from __future__ import annotations

import streamlit as st

# Streamlit writes white on the primary colour in both themes; the dark theme's is too light for that.
_HTML = """<style>
[data-testid=stElementContainer]:has(.kvplan-name) { position: absolute; width: 1px; }
.kvplan-name { position: absolute; width: 1px; height: 1px; margin: 0; padding: 0; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
[data-testid=stApp] :is([kind=primary], [kind=primaryFormSubmit], [data-testid=stMultiSelectTagsContainer] [data-tag],
  [data-testid=stNumberInput] button:is(:hover, :focus):enabled) { color: light-dark(#FFFFFF, #0E1116); }
</style><h1 class="kvplan-name">kvplan: NAME</h1>"""


def show_page_name(name: str) -> None:
    """Name the page; `name` is one of this package's own."""
    st.html(_HTML.replace("NAME", name))
