"""What the network made of training: a trace to play back, and how long iterations took."""

import numpy as np

from jaxlossy.errors import ConfigError, check_name
from jaxlossy.netsim.learning import LearningTraffic
from jaxlossy.packets import owners
from jaxlossy.trace import RECORDABLE, Trace


def to_trace(traffic: LearningTraffic, delivered: np.ndarray) -> Trace:
    """What the network delivered, as training plays it back (``channel.recorded``).

    Args:
      traffic: what was sent; with placement 'fixed' or 'separate', and with the model shared out
        among the servers as training does (``packets.owners``).
      delivered: which packets arrived, bool (packet,): those of the first message in order, then
        those of the second, ....

    Raises:
      ConfigError: another placement, other shares, another number of packets.
    """
    exchange = traffic.exchange
    check_name("placement", exchange.placement, RECORDABLE)
    owned = np.bincount(owners(exchange.num_packets, exchange.servers))
    if exchange.packets.tolist() != owned.tolist():
        allowed = f"{owned.tolist()} packets, as in training"
        raise ConfigError("message_bytes", f"{exchange.packets.tolist()} packets", allowed)
    count = traffic.packets
    delivered = np.asarray(delivered)
    if delivered.shape != (count.sum(),) or delivered.dtype != bool:
        allowed = f"booleans of shape {(int(count.sum()),)}, one for each packet sent"
        raise ConfigError("delivered", (delivered.dtype.name, delivered.shape), allowed)
    iterations = len(traffic.phase_start_ns)
    arrived = np.ones((2, iterations, exchange.workers, exchange.num_packets), bool)
    message = np.repeat(np.arange(count.size), count)
    packet = (
        traffic.first_packet[message] + np.arange(message.size) - (count.cumsum() - count)[message]
    )
    places = traffic.phase[message], traffic.iteration[message], traffic.worker[message], packet
    arrived[places] = delivered
    return Trace(*arrived, servers=exchange.servers, placement=exchange.placement)


def phase_times(traffic: LearningTraffic, finish_ns: np.ndarray) -> np.ndarray:
    """How long the phases took: from their start until their last message had finished.

    Args:
      traffic: what was sent.
      finish_ns: when each message had, whatever that means for its transport, int64 (message,);
        negative: never, which nobody waits for.

    Returns:
      int64 (iteration, phase). The time to compute is part of the first phase; the sum over phases
      is the time of an iteration.

    Raises:
      ConfigError: another number of messages.
    """
    finish = np.asarray(finish_ns, np.int64)
    if finish.shape != traffic.iteration.shape:
        raise ConfigError("finish_ns", finish.shape, f"one a message, {traffic.iteration.shape}")
    last = traffic.phase_start_ns.copy()
    np.maximum.at(last, (traffic.iteration, traffic.phase), finish)
    # Workers compute, also those of an exchange that sends nothing or loses all.
    np.maximum.at(last, (traffic.iteration, traffic.phase), traffic.messages.start_ns)
    return last - traffic.phase_start_ns


def iteration_times(traffic: LearningTraffic, finish_ns: np.ndarray) -> np.ndarray:
    """How long the iterations took, both phases together, int64 (iteration,); see ``phase_times``.

    With phases at fixed times this is how long they would take one right after the other.
    """
    return phase_times(traffic, finish_ns).sum(axis=1)
