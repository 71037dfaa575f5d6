"""The questions of the Sweep page, a module each: controls, the answer in words, a figure, the table behind it."""
