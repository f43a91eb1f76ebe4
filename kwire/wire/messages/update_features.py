"""UpdateFeatures, key 57: raise or lower the finalized level of features.

Version 1 adds the upgrade type, and requests that are only validated. Version 2 has one result for all features.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Int8, Int16, Int32, String


@struct()
class FeatureUpdateKey:
    feature: String = field("0+")
    max_version_level: Int16 = field("0+")
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = field("0+", default=60000)
    feature_updates: Array[FeatureUpdateKey] = field("0+")
    validate_only: Bool = field("1+", default=False)


@struct()
class UpdatableFeatureResult:
    feature: String = field("0+")
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")
    results: Array[UpdatableFeatureResult] = field("0-1", default=list)


UPDATE_FEATURES = Api(UpdateFeaturesRequest, UpdateFeaturesResponse)
