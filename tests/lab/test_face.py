"""The lab as others use it: names, what it needs, and what it leaves alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvplan import lab

LAB = Path(lab.__file__).parent
ROOT = LAB.parent.parent


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_public_name_is_there():
    assert all(hasattr(lab, name) for name in lab.__all__)


def test_without_torch_the_lab_says_what_to_install_and_the_rest_still_works():
    done = run(
        "import sys; sys.modules['torch'] = None\n"
        "import kvplan\n"
        "try:\n    from kvplan import lab\n"
        "except kvplan.KvplanError as error:\n    print(error)"
    )
    assert done.returncode == 0, done.stderr
    assert "pip install" in done.stdout
    assert "torch" in done.stdout


def test_torch_is_imported_by_the_lab_alone_and_transformers_by_nothing_until_it_is_used():
    done = run("import sys, kvplan; print('torch' in sys.modules); kvplan.lab; print('transformers' in sys.modules)")
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_a_course_can_print_the_model_and_its_caches():
    lines = [(LAB / name).read_text(encoding="utf-8").splitlines() for name in ("model.py", "caches.py")]
    assert sum(map(len, lines)) < 350


@pytest.mark.parametrize("cache", ["dynamic", "static", "paged", "sliding"])
def test_generate_takes_a_cache_by_name(cache):
    model = lab.TinyDecoder(dtype="float64", window=6)
    assert lab.generate(model, [1, 2, 3], 12, cache=cache).tolist() == lab.generate(model, [1, 2, 3], 12).tolist()
