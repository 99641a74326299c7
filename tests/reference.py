"""RPS as plain NumPy loops, to hold the vectorised code against."""

import numpy as np


def average_arrived(values, up, down):
    """One exchange of (worker, packet, length) values, message by message."""
    workers, num_packets, _ = values.shape
    result = values.copy()
    for j in range(num_packets):
        arrived = [values[i, j] for i in range(workers) if up[i, j]]
        if not arrived:
            continue
        average = np.mean(arrived, axis=0, dtype=np.float64)
        for i in range(workers):
            if down[i, j]:
                result[i, j] = average
    return result


def owners(num_packets, servers):
    """Server of each packet: the parts of np.array_split."""
    parts = np.array_split(np.arange(num_packets), servers)
    return np.concatenate([np.full(len(part), s) for s, part in enumerate(parts)])
