import numpy as np
import pytest
import xarray as xr

import jaxlossy


def results(accuracy, loss, **fields):
    count = len(accuracy)
    coords = {"seed": np.arange(count), "servers": [1] * count, "drop_probability": [0.0] * count}
    coords |= fields
    return xr.Dataset(
        {
            "test_accuracy": (("config", "step"), np.reshape(accuracy, (-1, 1))),
            "test_loss": (("config", "step"), np.reshape(loss, (-1, 1))),
        },
        {"step": [1], **{name: ("config", values) for name, values in coords.items()}},
    )


def test_the_table_has_means_and_deviations_in_their_cells():
    ds = results(
        [0.9, 0.8, 0.5, 0.7],
        [1.0] * 4,
        drop_probability=[0.0, 0.0, 0.1, 0.1],
        servers=[1, 1, 1, 4],
        seed=[0, 1, 0, 0],
    )
    lines = jaxlossy.table(ds).splitlines()
    assert lines[0].startswith("final test accuracy of the mean model")
    assert lines[1].split() == ["servers", "1", "4"]
    assert lines[3].split() == ["0.0", "0.850", "±", "0.071"]
    assert lines[4].split() == ["0.1", "0.500", "0.700"]


def test_the_table_leaves_out_and_counts_what_diverged():
    ds = results([0.9, 0.1, 0.1], [1.0, np.nan, np.inf], drop_probability=[0.0, 0.0, 0.5])
    text = jaxlossy.table(ds)
    assert "2 of 3 configs diverged and are left out" in text
    assert "0.900" in text
    assert text.splitlines()[-1].split() == ["0.5", "diverged"]


def test_the_table_has_the_loss_where_there_is_no_accuracy():
    text = jaxlossy.table(results([np.nan, np.nan], [2.0, 4.0]))
    assert text.startswith("final test loss of the mean model")
    assert "3.000 ± 1.414" in text


@pytest.mark.parametrize("swept", ["aggregation", "dirichlet_alpha"])
def test_other_swept_fields_are_rows(swept):
    values = {"aggregation": ["a", "b"], "dirichlet_alpha": [0.1, np.inf]}[swept]
    text = jaxlossy.table(results([0.25, 0.75], [1.0, 1.0], seed=[0, 0], **{swept: values}))
    assert swept in text
    assert "0.250" in text
    assert "0.750" in text


def test_results_of_two_sweeps_put_together_are_told_apart():
    one, two = (
        results([accuracy], [1.0], channel=[channel]).assign_attrs(swept='["seed"]')
        for accuracy, channel in ((0.25, "bernoulli"), (0.75, "bursts"))
    )
    text = jaxlossy.table(xr.concat([one, two], "config"))
    assert text.splitlines()[-2].split() == ["bernoulli", "0.0", "0.250"]
    assert text.splitlines()[-1].split() == ["bursts", "0.0", "0.750"]


def test_one_direction_swept_is_the_row():
    text = jaxlossy.table(results([0.5, 0.5], [1.0, 1.0], uplink_drop_probability=[0.0, 0.1]))
    assert "uplink_drop_probability" in text
    assert "\ndrop_probability" not in text
