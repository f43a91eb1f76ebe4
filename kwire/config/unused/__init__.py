"""Broker settings of Apache Kafka 4.3 that kwire accepts and shows in DescribeConfigs, but does not use.

Names, types, defaults, bounds and modes were read from a running Apache Kafka 4.3.1, with DescribeConfigs and with
IncrementalAlterConfigs (`validate_only`). If a default depends on the number of brokers, it is the default of one node.
"""

from kwire.config.setting import Setting
from kwire.config.unused.coordinators import COORDINATORS_SETTINGS
from kwire.config.unused.oauthbearer import OAUTHBEARER_SETTINGS
from kwire.config.unused.quorum import QUORUM_SETTINGS
from kwire.config.unused.remote_storage import REMOTE_STORAGE_SETTINGS
from kwire.config.unused.replication import REPLICATION_SETTINGS
from kwire.config.unused.sasl import SASL_SETTINGS
from kwire.config.unused.server import SERVER_SETTINGS
from kwire.config.unused.tls import UNUSED_TLS_SETTINGS

UNUSED_SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Not used: replication": REPLICATION_SETTINGS,
    "Not used: KRaft quorum": QUORUM_SETTINGS,
    "Not used: coordinators": COORDINATORS_SETTINGS,
    "Not used: Kafka's own server": SERVER_SETTINGS,
    "Not used: tiered storage": REMOTE_STORAGE_SETTINGS,
    "Not used: SASL": SASL_SETTINGS,
    "Not used: SASL/OAUTHBEARER": OAUTHBEARER_SETTINGS,
    "Not used: TLS": UNUSED_TLS_SETTINGS,
}
