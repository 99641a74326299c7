"""What became of a simulation, as an xarray Dataset."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from jaxlossy.netsim.state import MSS, NIL, NONE, State

if TYPE_CHECKING:
    from jaxlossy.netsim.simulation import Scenario


def dataset(scenario: "Scenario", s: State) -> xr.Dataset:
    """Results by flow and by link.

    Returns:
      By ``flow``: start_ns, source, destination, size (bytes), traffic (name), reliable, and
        - fct_ns: completion time, from the start. A reliable flow is complete when its sender has
          the acknowledgment of the last byte; one of bounded loss when enough has arrived; any
          other when its last packet arrives. Of flows that are not complete: until the end of
          the run, or until their last arrival if unreliable; -1 if nothing arrived.
        - completed; of a lossy flow: whether all of it arrived;
        - bytes_acked: payload that the sender knows, or of unreliable flows that has arrived;
        - packets, packets_sent (data, resent ones too), packets_received (each once), timeouts;
        - first_arrival_ns, last_arrival_ns of data, from the start; -1: none.
      By ``link``: from, to, accepted_packets, accepted_bytes, dropped_packets, dropped_bytes,
        dropped_acks, ecn_marked_packets, max_queue_bytes (without the packet in transmission),
        busy_ns.
      By ``packet`` of the recorded traffic: packet_flow, packet_number, arrival_ns (from the flow's
        start; -1: lost) and delivered.
      Attributes: end_ns, events, and packets_sent, packets_arrived, packets_dropped of any kind.
    """
    given, flows, ports, clock = scenario.flows, s.flows, s.ports, s.clock[0]
    reliable = s.transports["reliable"][flows["transport"]].astype(bool)
    complete = flows["completed_at"] != NONE

    def since_start(time):
        return np.where(time == NONE, NONE, time - flows["start"])

    ran_for = np.maximum(clock["now"] - flows["start"], 0)
    unfinished = np.where(reliable, ran_for, since_start(flows["last_arrival"]))
    known = np.minimum(flows["una"].astype(np.int64) * MSS, flows["size"])
    by_flow = {
        "start_ns": flows["start"],
        "source": given.source,
        "destination": given.destination,
        "size": given.size,
        "traffic": np.asarray(given.names or [""])[given.traffic],
        "reliable": reliable,
        "fct_ns": np.where(complete, since_start(flows["completed_at"]), unfinished),
        "completed": complete,
        "bytes_acked": np.where(reliable, known, flows["bytes_received"]),
        "packets": flows["count"],
        "packets_sent": flows["packets_sent"],
        "packets_received": flows["packets_received"],
        "timeouts": flows["timeouts"],
        "first_arrival_ns": since_start(flows["first_arrival"]),
        "last_arrival_ns": since_start(flows["last_arrival"]),
    }
    still_busy = np.where(ports["sending"] == NIL, 0, ports["ends_at"] - clock["now"])
    by_link = {
        "from": scenario.network.links[:, 0],
        "to": scenario.network.links[:, 1],
        **{name: ports[name] for name in _COUNTERS},
        "ecn_marked_packets": ports["marked_packets"],
        "busy_ns": ports["busy_ns"] - np.maximum(still_busy, 0),
    }
    recorded = np.flatnonzero(flows["record"] != NONE)
    count = flows["count"][recorded]
    first = np.repeat(np.cumsum(count) - count, count)
    by_packet = {
        "packet_flow": np.repeat(recorded, count),
        "packet_number": np.arange(len(first)) - first,
        "arrival_ns": s.arrivals,
        "delivered": s.arrivals != NONE,
    }
    variables = {
        name: (dimension, np.array(values))
        for dimension, group in (("flow", by_flow), ("link", by_link), ("packet", by_packet))
        for name, values in group.items()
    }
    attributes = {
        "end_ns": int(clock["now"]),
        "events": int(clock["events"]),
        "packets_sent": int(clock["sent"]),
        "packets_arrived": int(clock["arrived"]),
        "packets_dropped": int(clock["dropped"]),
    }
    return xr.Dataset(variables, attrs=attributes)


_COUNTERS = (
    "accepted_packets",
    "accepted_bytes",
    "dropped_packets",
    "dropped_bytes",
    "dropped_acks",
    "max_queue_bytes",
)
