"""The fields of the Import page: what is pasted, uploaded, or fetched from the hub, read into objects.

An error stands below its field. Nothing is fetched before the visitor asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import streamlit as st

from kvplan.errors import ConfigError, KvplanError, shorten
from kvplan.importer import hub, parse_config
from kvplan.importer.headers import Beginning, Index, read_beginnings, read_index
from kvplan.ui import words

MAX_MEGABYTES = 4
MAX_BYTES = MAX_MEGABYTES * 2**20
MAX_PASTED = 1_000_000
"""Characters: a browser sends what was typed with every change, and the server cuts off who sends more than 8 MB."""

MAX_HEADER_MEGABYTES = 32
"""Of the beginning of a file or an index, and what the server takes at most."""

FAULTY = "faulty"
ESTIMATE = "import_estimate"
_FETCHED = "import_fetched"

WANTED = (
    f"The config.json of a decoder language model, up to {MAX_MEGABYTES} MB: it stands among the files of every "
    "checkpoint that transformers can load. It stays in this session; no code of a checkpoint is run."
)
GGUF_WANTED = (
    f"Only the header of a GGUF file is read, which lists every tensor with its type. Up to {MAX_HEADER_MEGABYTES} MB "
    "are sent; of a larger file give the beginning, as head -c 32M model.gguf > start.gguf makes it, and of a split "
    "file that of every part. Whole files are read in the terminal: python -m kvplan import model.gguf"
)
NO_HUB = (
    "Hub ids are not enabled: this server makes no request to any other host (it would with KVPLAN_HUB=1). Open the "
    "model's page yourself, choose config.json among its files, and paste it here or upload it."
)
HUB_WANTED = (
    f"Three small files are asked of {hub.HOST}: config.json, hf_quant_config.json and model.safetensors.index.json. "
    "No code of the repository is read."
)


class Asked(NamedTuple):
    """A config with what stands beside it: hf_quant_config.json and what the checkpoint stores.

    file  the name of the uploaded file
    name  of its repository
    """

    config: Mapping[str, Any]
    source: str
    file: str = ""
    companion: Mapping[str, Any] | None = None
    stored: Index | None = None
    name: str = ""


# ------------------------------------------------------------------------------------------------------ what is given


def start_over() -> None:
    """Another config: an estimate that was accepted for the one before does not hold for it."""
    st.session_state[ESTIMATE] = False


def beside(found: Asked | None) -> Asked | None:
    """`found` with the files that stand beside a config; None where it is none, or one of them is faulty."""
    with st.expander("Beside it: hf_quant_config.json, model.safetensors.index.json or .safetensors"):
        companion, stored = ask_companion(), ask_stored()
    if found is None or FAULTY in (companion, stored):
        return None
    return found._replace(companion=companion, stored=stored)


@contextmanager
def complaint(headline: str) -> Iterator[None]:
    """What goes wrong inside stands right there, in words."""
    try:
        yield
    except KvplanError as error:
        words.show_error(error, headline)


def ask_text() -> Asked | None:
    """A pasted config; None while there is none that can be read."""
    text = st.text_area(
        "config.json", key="import_text", height=240, persist_state="session", on_change=start_over,
        max_chars=MAX_PASTED,
        placeholder='{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, ...}',
    )  # fmt: skip
    if not (text or "").strip():
        st.text(WANTED)
        return None
    with complaint("This text cannot be read"):
        return Asked(bounded_json((text or "").encode(), "the pasted text"), "a pasted config.json")
    return None


def ask_file() -> Asked | None:
    """An uploaded config; None while there is none that can be read."""
    uploaded = st.file_uploader(
        "config.json", "json", key="import_file", on_change=start_over, max_upload_size=MAX_MEGABYTES
    )
    if uploaded is None:
        st.text(WANTED)
        return None
    with complaint("This file cannot be read"):
        config = bounded_json(uploaded.getvalue(), shorten(uploaded.name))
        return Asked(config, "an uploaded config.json", uploaded.name)
    return None


def ask_companion() -> Any:
    """The object of hf_quant_config.json, None without one, FAULTY where an error stands below its field."""
    uploaded = st.file_uploader(
        "hf_quant_config.json, where the checkpoint was quantized with ModelOpt", "json", key="import_quant",
        max_upload_size=MAX_MEGABYTES,
    )  # fmt: skip
    if uploaded is None:
        return None
    with complaint("This file cannot be read"):
        return bounded_json(uploaded.getvalue(), shorten(uploaded.name))
    return FAULTY


def ask_stored() -> Any:
    """What the checkpoint stores, None without anything, FAULTY where an error stands below its field."""
    uploaded = st.file_uploader(
        "model.safetensors.index.json, or the beginning of each .safetensors file, to compare with the bytes that are "
        "stored", ["json", "safetensors"], accept_multiple_files=True, key="import_index",
        max_upload_size=MAX_HEADER_MEGABYTES,
    )  # fmt: skip
    if not uploaded:
        return None
    with complaint("This file cannot be read"):
        return stored_in([Beginning(file.name, file.getvalue()) for file in uploaded])
    return FAULTY


@st.cache_resource(max_entries=8, show_spinner="Reading what is stored")
def stored_in(files: Sequence[Beginning]) -> Index:
    """An index or headers, read once: the index of a large model has 9 MiB. Raises ConfigError."""
    indexes = [file for file in files if file.name.endswith(".json")]
    if not indexes:
        return read_beginnings(files)
    if len(files) > 1:
        raise ConfigError(f"{shorten(indexes[0].name)} names all tensors; give it alone, or the headers alone")
    name = shorten(indexes[0].name)
    return replace(read_index(parse_config(indexes[0].data, name)), where=name)


def bounded_json(data: bytes, where: str) -> Mapping[str, Any]:
    """The JSON object in `data`. Raises ConfigError."""
    if len(data) > MAX_BYTES:  # the browser's own limit is no limit for a server
        raise ConfigError(f"{where} has {words.counted(len(data), 'byte')}; a config of up to {MAX_BYTES:,} is read")
    return parse_config(data, where)


# ------------------------------------------------------------------------------------------------------------ the hub


def ask_hub() -> Asked | None:
    """The files of a repository, after the visitor asked for them; None until then."""
    if not hub.is_enabled():
        st.text(NO_HUB)
        return None
    with st.form("import_hub", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        repo = st.text_input("Hub id", key="import_repo", max_chars=200, width=320, placeholder="Qwen/Qwen3-8B")
        revision = st.text_input(
            "Revision", key="import_revision", max_chars=100, width=200, placeholder="main",
            help="A branch, a tag or a commit.",
        )  # fmt: skip
        if st.form_submit_button("Fetch its config", type="primary"):
            wanted = ((repo or "").strip(), (revision or "").strip() or "main")
            fetched.clear(*wanted)
            st.session_state[_FETCHED] = wanted
            start_over()
    if _FETCHED not in st.session_state:
        st.text(HUB_WANTED)
        return None
    with complaint("This model cannot be fetched"):
        found = fetched(*st.session_state[_FETCHED])
        if isinstance(found, KvplanError):
            raise found
        return found
    return None


@st.cache_resource(max_entries=8, show_spinner="Asking the hub")
def fetched(repo: str, revision: str) -> Asked | KvplanError:
    """The files of a repository, or why there are none; asked for again only when the visitor does."""
    try:
        files = hub.fetch_repo(repo, revision)
        stored = None if files.index is None else replace(read_index(files.index), where="its index")
    except KvplanError as error:
        return error
    return Asked(files.config, files.source, "", files.companion, stored, repo.partition("/")[2])


# ---------------------------------------------------------------------------------------------------------- GGUF


def ask_gguf() -> list[Beginning]:
    """The beginnings of a GGUF file or of all its parts; empty until they are given."""
    uploaded = st.file_uploader(
        "GGUF file, or its beginning; of a split file all parts", "gguf", accept_multiple_files=True,
        key="import_gguf", max_upload_size=MAX_HEADER_MEGABYTES,
    )  # fmt: skip
    if not uploaded:
        st.text(GGUF_WANTED)
    return [Beginning(file.name, file.getvalue()) for file in uploaded or ()]
