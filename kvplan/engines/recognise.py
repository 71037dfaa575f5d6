"""Which preset a log's model is: by its name, without the endings that do not change the shape."""

from __future__ import annotations

import re

from kvplan.presets import list_models

_ENDINGS = re.compile(
    r"[-_ ](?:instruct|chat|it|base|hf|fp8|fp16|bf16|awq|gptq|bnb|nvfp4|mxfp4|int[48]|4bit|8bit|gguf|qat|unsloth"
    r"|dynamic|quantized|w[48]a(?:8|16)|block|[qi]q?\d\w*|k|m|s|xl|ud|inference|autoround|thinking|\d{4})$"
)


def preset_of(name: str | None) -> str | None:
    """The id of the preset whose layers the model called `name` has, or None where no name matches.

    `name` is a repository, a path or a file as logs print it. Only the name is compared: a fine-tune under another
    name is not found, and a checkpoint that changed its layers under the same name is.
    """
    known = set(list_models())
    if name is None:
        return None
    words = re.sub(r"[^a-z0-9.]+", "-", name.rstrip("/").split("/")[-1].lower().removesuffix(".gguf")).strip("-")
    while words:
        for candidate in (words, words.removeprefix("meta-")):
            if candidate in known:
                return candidate
        shorter = _ENDINGS.sub("", words)
        if shorter == words:
            return None
        words = shorter
    return None
