"""A whole machine chosen at once: its GPU, and all of them sharing every layer."""

from __future__ import annotations

import streamlit as st

from kvplan.errors import KvplanError
from kvplan.presets import list_nodes, load_node
from kvplan.ui.address import say_once
from kvplan.ui.library import find_gpu

NODE = "node"


def choose_node() -> None:
    """The list of nodes. It only fills in the fields below it, so that it holds no value of its own."""
    names = list_nodes()
    if names:
        st.selectbox(
            "Node", names, None, key=NODE, placeholder="Choose a whole node", on_change=_take_node,
            help="Sets the GPU below, and how many of them share every layer. Stages and replicas become 1.",
        )  # fmt: skip


def _take_node() -> None:
    """Runs before the page does."""
    name, st.session_state[NODE] = st.session_state[NODE], None
    if name is None:
        return
    try:
        node = load_node(name)
        find_gpu(node.gpu)  # a library may hold a node of a GPU that it has not
    except KvplanError as error:
        say_once(str(error))
    else:
        st.session_state.update({"gpu": node.gpu, "tp": str(node.num_gpus), "pp": 1, "dp": 1})
