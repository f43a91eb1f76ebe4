"""Broker settings of listeners, connections and requests."""

from kwire.config.setting import INT_MAX, Kind, Setting, at_least

NETWORK_SETTINGS = (
    Setting(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Listeners for Kafka clients, NAME://host:port. An empty host means every interface; port 0 lets the operating "
        "system choose a port. Kafka listens on every interface by default, kwire on loopback only. If only "
        "advertised.listeners is set, its names and ports are used.",
    ),
    Setting(
        "advertised.listeners",
        Kind.LIST,
        None,
        "Addresses returned in Metadata, by listener name. By default a client receives the address that it connected "
        "to.",
    ),
    Setting(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name, NAME:PROTOCOL.",
    ),
    Setting(
        "controller.listener.names",
        Kind.LIST,
        (),
        "Names of the KRaft controller's listeners. kwire does not open them and ignores their entries in listeners.",
    ),
    Setting("socket.request.max.bytes", Kind.INT, 104857600, "Maximum size of a request.", at_least(1)),
    Setting(
        "socket.send.buffer.bytes",
        Kind.INT,
        524288,
        "Send buffer of a connection (SO_SNDBUF); -1 uses the operating system's default.",
        at_least(-1),
    ),
    Setting(
        "socket.receive.buffer.bytes",
        Kind.INT,
        -1,
        "Receive buffer of a connection (SO_RCVBUF); -1, the default in kwire, uses the operating system's default.",
        at_least(-1),
    ),
    Setting(
        "socket.listen.backlog.size",
        Kind.INT,
        1024,
        "Maximum number of connections waiting to be accepted.",
        at_least(1),
    ),
    Setting(
        "max.connections",
        Kind.INT,
        10000,
        "Maximum number of connections. A further connection is closed immediately. Kafka has no limit by default. "
        "listener.name.NAME.max.connections is the maximum of one listener.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "Maximum number of connections from one IP address. The Kafka listeners and the HTTP port are counted "
        "separately.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Exceptions from max.connections.per.ip, ADDRESS:COUNT, separated by commas. kwire accepts IP addresses only, "
        "Kafka also host names.",
        is_dynamic=True,
    ),
    Setting(
        "kwire.max.connections.per.principal",
        Kind.INT,
        INT_MAX,
        "Maximum number of connections to the Kafka listeners of one user, or of one subject of client certificates. A "
        "further connection is closed when its client has authenticated. Clients that do not authenticate are not "
        "counted.",
        at_least(1),
        is_dynamic=True,
    ),
    Setting(
        "max.connection.creation.rate",
        Kind.INT,
        INT_MAX,
        "Maximum number of new connections per second to the Kafka listeners, as an average over the window of "
        "quota.window.num. Above it the server begins to read from a new connection only after a delay, of at most "
        "quota.window.size.seconds. listener.name.NAME.max.connection.creation.rate is the rate of one listener.",
        at_least(0),
        is_dynamic=True,
    ),
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600000,
        "A connection is closed after this time without a request; -1 disables the limit.",
        at_least(-1),
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        268435456,
        "Memory for all requests being received or waiting to be handled, and for batches that wait for a transaction "
        "or for the event store. Above this limit the server stops reading requests, and refuses such batches with a "
        "retriable error. -1 means no limit, which is Kafka's default.",
        at_least(-1),
    ),
    Setting("fetch.max.bytes", Kind.INT, 57671680, "Maximum number of bytes in one fetch response.", at_least(1024)),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "Maximum number of incremental fetch sessions. A consumer with a session does not repeat all its partitions in "
        "each fetch request. 0 disables sessions.",
        at_least(0),
    ),
)
