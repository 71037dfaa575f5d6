"""Screen 7: fewer KV heads for a trained model are not free; a model is trained, pooled and trained on, live."""

from __future__ import annotations

import streamlit as st

from kvplan import lab, lab_charts
from kvplan.lab.heads import TRAINING_STEPS, Trained
from kvplan.ui.address import BIND
from kvplan.ui.lab_screens.parts import Measure, Prediction, ask, heading, long_work, settle, show_chart, show_measures
from kvplan.units import counted

MAX_STEPS = 40
SAME, WORSE, MUCH_WORSE = "the same loss", "up to half as much again", "a loss far higher"


def show() -> None:
    """The whole screen."""
    st.text("How many KV heads a model has is decided when it is trained. What if a trained model gets fewer?")
    model = lab.training_model()
    shape = model.shape
    st.text(
        f"{counted(shape.num_layers, 'layer')}, {counted(shape.num_attention_heads, 'query head')}, "
        f"{counted(shape.num_kv_heads, 'KV head')}, head_dim {shape.head_dim}, seed {shape.seed}; it learns to write "
        "sentences of a toy language, letter by letter."
    )
    heading("Do")
    trained = long_work(
        "lab_train",
        f"Train it for {TRAINING_STEPS} steps",
        TRAINING_STEPS,
        lambda tell: lab.train(model, TRAINING_STEPS, on_step=tell),
    )
    if trained is None:
        st.text("Training takes some seconds of one core. The rest of this screen needs the trained model.")
        return
    _show_trained(trained)
    _show_shrunk(trained)


def _show_trained(trained: Trained) -> None:
    show_measures(
        [
            Measure("Loss before training", f"{trained.loss_before:.3f}", "nats a letter, on text it never saw"),
            Measure("Loss after training", f"{trained.loss_after:.3f}", f"the same text, after {TRAINING_STEPS} steps"),
        ]
    )


def _show_shrunk(trained: Trained) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        choice = st.segmented_control(
            "KV heads now", ["4", "2", "1"], default="4", key="lab_pool", required=True, bind=BIND
        )
        steps = st.number_input(
            "Training steps after that", 0, MAX_STEPS, TRAINING_STEPS // 20, key="lab_mend", bind=BIND, width=220,
            help=f"Up to {MAX_STEPS}; the first value is a twentieth of the training.",
        )  # fmt: skip
    kv_heads, mending = int(choice or "4"), steps or 0
    question = Prediction(
        "lab_pooled",
        f"The mean of every {8 // kv_heads} KV heads replaces them, and nothing else changes. The model then has:",
        (SAME, WORSE, MUCH_WORSE),
    )
    heading("Predict")
    if not ask(question, kv_heads):
        return
    shrunk = long_work(
        "lab_shrink",
        f"Pool to {counted(kv_heads, 'KV head')} and train for {counted(mending, 'step')}",
        (kv_heads, mending),
        lambda tell: lab.shrink(trained.model, kv_heads, mending, on_step=tell),
    )
    if shrunk is not None:
        settle(question, kv_heads, _harm(trained.loss_after, shrunk.loss_before))
        _show_losses(trained, shrunk, mending)


def _harm(before: float, after: float) -> str:
    if after <= before * 1.01:
        return SAME
    return WORSE if after <= before * 1.5 else MUCH_WORSE


def _show_losses(trained: Trained, shrunk: Trained, mending: int) -> None:
    heading("Check")
    kv_heads = shrunk.model.shape.num_kv_heads
    names = ["trained, 8 KV heads", f"pooled to {kv_heads}", f"and {counted(mending, 'step')} later"]
    losses = [trained.loss_after, shrunk.loss_before, shrunk.loss_after]
    texts = [f"{loss:.3f}" for loss in losses]
    show_chart(
        lab_charts.bars(names, losses, texts, "loss, nats a letter"),
        "Loss of the trained model, after pooling, and after more training",
        "lab_losses",
    )
    shape = shrunk.model.shape
    choices = lab.head_choices(shape.num_attention_heads, shape.head_dim, shape.num_layers, 4).to_dict("records")
    sizes = {choice["num_kv_heads"]: choice for choice in choices}
    show_measures(
        [
            Measure(
                "Loss after pooling", texts[1], f"{shrunk.loss_before / trained.loss_after:.1f} times the trained one"
            ),
            Measure(f"After {counted(mending, 'more step')}", texts[2], "the same held-out text"),
            Measure(
                "Cache of one token",
                f"{sizes[kv_heads]['bytes_per_token']:,} B",
                f"{sizes[kv_heads]['formula']}; before: {sizes[8]['bytes_per_token']:,} B",
            ),
        ]
    )
    st.text(
        "The cache shrinks by H / H_kv at once; the model has to be trained again. The planner's KV-head axis is "
        "memory arithmetic and no free conversion."
    )
