"""Who takes part in the tests beside ordinary nodes, and small ways of asking what happened."""

from __future__ import annotations

from hyperbloom.replication.settings import FeedSettings


def fired(deferred):
    """The result of a Deferred that has one."""
    results = []
    deferred.addBoth(results.append)
    assert results, "the Deferred has not fired"
    if hasattr(results[0], "raiseException"):
        results[0].raiseException()
    return results[0]


def numbered(count, prefix=b"v"):
    return [prefix + b"%06d" % i for i in range(count)]


def refusals(node):
    return [refusal.kind for refusal in node.node.status().refusals]


def light_pair(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key, mode="light"),))
    owner.invite(owner.key, member)
    return owner, member, owner.key


def chain_of(network, length, **more):
    """Nodes n0 (owner) … n<length>, each invited by the one before."""
    nodes = [network.add("n0")]
    feed = nodes[0].key
    settings = FeedSettings(key=feed, **more)
    for number in range(1, length + 1):
        node = network.add(f"n{number}", feeds=(settings,))
        nodes[-1].invite(feed, node)
        nodes.append(node)
    return nodes, feed


class Instead:
    """Stands for a part of a connection, but for what it is given by name; whoever has it sets it.

    `peering.output = Instead(peering.output, send_extension=sent.append)`
    """

    def __init__(self, one, **calls):
        vars(self).update(calls)
        self._one = one

    def __getattr__(self, name):
        return getattr(self._one, name)


class Intruder:
    """A peer that speaks by hand: a session and a transport of the network."""

    def __init__(self, network, member, owner, feed):
        self.connection = network.connect(member, owner, feed)
        network.run(2)
        self.session = self.connection.session
        self.encrypt = self.session._outgoing.process
        self.write = self.connection.transport.write

    def send(self, network, data, seconds=0.5):
        self.write(data)
        network.run(seconds)


class SlowWriter:
    """A writer whose disk takes its time."""

    def __init__(self, inner, clock):
        self.inner, self.clock, self.queued_bytes = inner, clock, 0
        self.figures = inner.figures
        self.seconds = 1.0

    def submit(self, op, done, **more):
        self.clock.callLater(self.seconds, self.inner.submit, op, done, **more)
