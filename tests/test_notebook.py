"""The quickstart notebook: runs from top to bottom, and is committed with its outputs.

After a change of the notebook, this runs it and keeps the new outputs (about a minute):

python tests/test_notebook.py
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "scripts" / "notebooks" / "quickstart.ipynb"


def execute(notebook, scratch):
    """Runs all cells, in place, in a kernel of this interpreter whatever kernels are installed."""
    # Without folders to look into, "python3" is ipykernel's own spec, which names sys.executable.
    manager = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
        connection_file=str(Path(scratch) / "kernel.json"),
    )
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=300,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
        record_timing=False,
    )
    client.execute(env=os.environ | {"IPYTHONDIR": str(scratch)})


def outputs(notebook, kind):
    """All outputs of a kind, as (cell, output)."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [(cell, out) for cell in cells for out in cell.outputs if out.output_type == kind]


def printed(notebook, name="stdout"):
    """What the cells print; the progress bars are in stderr."""
    return "".join(out.text for _, out in outputs(notebook, "stream") if out.name == name)


def shapes(text):
    """The server counts and drop probabilities of the tables in a text."""
    found = re.findall(r"^servers +(.*)\ndrop_probability *\n((?:.* ± .*\n)+)", text, re.M)
    return [(top.split(), [row.split()[0] for row in rows.splitlines()]) for top, rows in found]


@pytest.fixture(scope="module")
def committed():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_committed_notebook_was_run_in_order_and_shows_its_figure(committed):
    nbformat.validate(committed)
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not outputs(committed, "error")
    assert {out.name for _, out in outputs(committed, "stream")} == {"stdout"}
    (figure,) = [cell for cell in code if "accuracy_against_loss" in cell.source]
    assert ["image/png" in out.data for out in figure.outputs] == [True]
    assert shapes(printed(committed)) == [
        (["1", "4", "8", "16"], ["0.00", "0.05", "0.10", "0.20", "0.50"]),
        (["1", "16"], ["0.0", "0.1", "0.5"]),
    ]


def test_the_committed_notebook_says_nothing_about_where_it_ran(committed):
    shown = [
        out.data
        for kind in ("execute_result", "display_data")
        for _, out in outputs(committed, kind)
    ]
    texts = [text for data in shown for kind, text in data.items() if kind.startswith("text/")]
    everything = "\n".join([printed(committed), *texts, *(cell.source for cell in committed.cells)])
    assert not re.findall(r"/home/|/root/|/Users/|/tmp/|[A-Z]:\\", everything)
    assert not any(cell.metadata for cell in committed.cells)


def test_the_notebook_runs_and_gives_tables_of_the_same_shape(committed, tmp_path):
    fresh = nbformat.from_dict(committed)
    for cell in fresh.cells:
        cell.source = cell.source.replace("steps=200,", "steps=4,")
        cell.source = cell.source.replace("eval_every=50,", "eval_every=2,")
    path = tmp_path / "quickstart.ipynb"
    nbformat.write(fresh, path)
    # In a process of its own: nbclient leaves sockets open, for which later tests would be blamed.
    cache = jax.config.jax_compilation_cache_dir  # compiling takes most of the time that is left
    subprocess.run(
        [sys.executable, __file__, str(path)],
        check=True,
        env=os.environ
        | {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
        },
    )
    fresh = nbformat.read(path, as_version=4)
    assert not re.findall(r".*\w+Warning\b.*", printed(fresh, "stderr"))
    assert shapes(printed(fresh)) == shapes(printed(committed))


def _without_progress(cell_outputs):
    """Without the progress bars, of which every update is kept, and with what they cut joined."""
    kept = []
    for out in cell_outputs:
        if out.get("name") == "stderr":
            continue
        if kept and out.get("name") == kept[-1].get("name") == "stdout":
            kept[-1].text += out.text
        else:
            kept.append(out)
    return kept


def refresh(notebook):
    """Runs the notebook as it is, and keeps what GitHub shows well."""
    with tempfile.TemporaryDirectory() as scratch:
        execute(notebook, scratch)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _without_progress(cell.outputs)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def main(path):
    """Runs the notebook at the path and writes it back; the committed one without its progress."""
    notebook = nbformat.read(path, as_version=4)
    if Path(path) == NOTEBOOK:
        refresh(notebook)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            execute(notebook, scratch)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else NOTEBOOK)
