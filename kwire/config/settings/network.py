"""Broker settings of listeners, connections and requests."""

from kwire.config.setting import INT_MAX, Kind, Setting, at_least

NETWORK_SETTINGS = (
    Setting(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Doors for Kafka clients, NAME://host:port. An empty host is every interface, port 0 lets the machine choose. "
        "Kafka listens on every interface by default, kwire on loopback only. Left out while advertised.listeners is "
        "set, the same names and ports are used.",
    ),
    Setting(
        "advertised.listeners",
        Kind.LIST,
        None,
        "Addresses in Metadata, by listener name. By default a client gets the address that it connected to.",
    ),
    Setting(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "How each listener name is secured, NAME:PROTOCOL. Only PLAINTEXT is served so far.",
    ),
    Setting(
        "controller.listener.names",
        Kind.LIST,
        (),
        "Listeners of the KRaft controller; kwire does not open them and leaves them out of listeners.",
    ),
    Setting("socket.request.max.bytes", Kind.INT, 104857600, "Largest request that is read.", at_least(1)),
    Setting(
        "socket.send.buffer.bytes",
        Kind.INT,
        524288,
        "Send buffer of a connection (SO_SNDBUF); -1 leaves it to the machine.",
        at_least(-1),
    ),
    Setting(
        "socket.receive.buffer.bytes",
        Kind.INT,
        -1,
        "Receive buffer of a connection (SO_RCVBUF); -1, the default here, leaves it to the machine.",
        at_least(-1),
    ),
    Setting("socket.listen.backlog.size", Kind.INT, 1024, "Connections waiting to be accepted.", at_least(1)),
    Setting(
        "max.connections",
        Kind.INT,
        10000,
        "Most connections at a time; one more is closed at once. Kafka has no bound by default.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "Most connections from one address, to the Kafka listeners and to the HTTP port by itself.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600000,
        "A connection is closed after this time without a request; -1 never closes it.",
        at_least(-1),
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        268435456,
        "Memory for all requests being received or waiting for their turn, and for batches that wait for a transaction "
        "or for the event store. Beyond it reading pauses, and such batches are refused with a retriable error. -1 is "
        "no bound, which is Kafka's default.",
        at_least(-1),
    ),
    Setting("fetch.max.bytes", Kind.INT, 57671680, "Most bytes in one fetch response.", at_least(1024)),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "Readers that are remembered between two fetches, so that they need not name all their partitions each time; "
        "others do. 0 remembers nobody.",
        at_least(0),
    ),
)
