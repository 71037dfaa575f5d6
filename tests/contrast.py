"""How far two colours stand apart: WCAG's contrast, and their distance as people with each colour vision see it."""

import math

import numpy as np

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB
VISIONS = {
    "usual": np.eye(3),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue cones": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = np.array([0.95047, 1.0, 1.08883])


def _linear(color):
    """Linear red, green and blue of `#RRGGBB`."""
    parts = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG 2.2's contrast ratio of two colours, from 1 to 21."""
    low, high = sorted(float(_XYZ[1] @ _linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def distance(one, other, vision):
    """CIE 1976 difference of two colours as seen with one of `VISIONS`; about 2.3 is just noticed."""
    return math.dist(_lab(one, vision), _lab(other, vision))


def _lab(color, vision):
    seen = np.clip(VISIONS[vision] @ _linear(color), 0, 1)
    x, y, z = (math.pow(t, 1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in _XYZ @ seen / _WHITE)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
