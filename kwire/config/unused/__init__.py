"""Broker settings that Apache Kafka 4.3 knows and kwire does not use.

They are accepted, so that an existing configuration works, and DescribeConfigs shows them with Kafka's defaults and
types. Names, types, defaults, bounds and modes were read from a running Apache Kafka 4.3.1 (DescribeConfigs and
IncrementalAlterConfigs with `validate_only`); where a default depends on the number of brokers it is that of one node.
"""

from kwire.config.setting import Setting
from kwire.config.unused.coordinators import COORDINATORS_SETTINGS
from kwire.config.unused.oauthbearer import OAUTHBEARER_SETTINGS
from kwire.config.unused.quorum import QUORUM_SETTINGS
from kwire.config.unused.remote_storage import REMOTE_STORAGE_SETTINGS
from kwire.config.unused.replication import REPLICATION_SETTINGS
from kwire.config.unused.sasl import SASL_SETTINGS
from kwire.config.unused.server import SERVER_SETTINGS
from kwire.config.unused.tls import TLS_SETTINGS

UNUSED_SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Not used: replication": REPLICATION_SETTINGS,
    "Not used: KRaft quorum": QUORUM_SETTINGS,
    "Not used: coordinators": COORDINATORS_SETTINGS,
    "Not used: Kafka's own server": SERVER_SETTINGS,
    "Not used: tiered storage": REMOTE_STORAGE_SETTINGS,
    "Not used: SASL": SASL_SETTINGS,
    "Not used: SASL/OAUTHBEARER": OAUTHBEARER_SETTINGS,
    "Not used: TLS": TLS_SETTINGS,
}
