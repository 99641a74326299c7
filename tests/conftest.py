"""Strict tests: two CPU devices, no silent promotion, shapes checked, one compilation cache."""

import os
import sys
import tempfile
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

CACHE = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(
    Path(tempfile.gettempdir()) / "jaxlossy-test-cache"
)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The shapes in the signatures of these modules are checked at every call of every test.
CHECKED = ["jaxlossy.packets", "jaxlossy.channel", "jaxlossy.aggregation"]
install_import_hook(CHECKED, "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def _data_dir(tmp_path_factory):
    """Data sets are prepared in a directory of the test run's own."""
    patch = pytest.MonkeyPatch()
    folder = str(tmp_path_factory.mktemp("tensorflow_datasets"))
    patch.setenv("TFDS_DATA_DIR", folder)
    if found := sys.modules.get("tensorflow_datasets"):  # it read the variable when imported
        patch.setattr(found.core.constants, "DATA_DIR", folder)
    yield
    patch.undo()
