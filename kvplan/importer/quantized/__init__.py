"""The ways in which published checkpoints store quantized weights, one module each.

A reader takes a quantization config and returns the `Scheme` that it states. It applies only what is known to be
what the files hold; anything else is refused with an UnsupportedConfigError, whose sentence says what is not known.
"""
