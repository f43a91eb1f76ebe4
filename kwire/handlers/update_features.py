"""UpdateFeatures 0-2: apply all requested feature levels or none; the response is sent when they are durable.

- The request needs ALTER on the cluster.
- A level is INVALID_UPDATE_VERSION if the server does not support it, if it is lower than the current level and no
  downgrade is requested, or if it is higher and a downgrade is requested. If a feature is repeated, its last entry
  applies.
- Version 0 has a flag that allows a lower level. Version 1 has the upgrade type instead, and can request validation
  only. In versions 0 and 1 a response without an error has a result for each feature; in version 2 it has none.
"""

from kwire.access.acl import Operation
from kwire.broker.admin.features import FeatureUpdate, UpgradeType
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# There are only some ten features.
FEATURE_UPDATES_MAX = 1_000


async def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not context.cluster.permits(Operation.ALTER):
        return UpdateFeaturesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    if len(request.feature_updates) > FEATURE_UPDATES_MAX:
        reason = f"No feature was updated: a request can have at most {FEATURE_UPDATES_MAX} updates."
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    updates = {
        asked.feature: FeatureUpdate(asked.max_version_level, _upgrade_type(context, asked))
        for asked in request.feature_updates
    }
    try:
        await context.services.features.update(updates, validate_only=request.validate_only)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=f"No feature was updated: {error.message}")
    return UpdateFeaturesResponse(
        error_code=0,
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=asked.feature, error_code=ErrorCode.NONE, error_message=None)
            for asked in request.feature_updates
        ],
    )


def _upgrade_type(context: Context, asked: FeatureUpdateKey) -> int:
    if context.api_version > 0:
        return asked.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
