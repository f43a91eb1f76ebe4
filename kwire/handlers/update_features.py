"""UpdateFeatures 0-2: raise or lower feature levels, all that are asked for or none; durable before the answer.

- A level this server does not have, one below the present without a downgrade being asked for, or above it as a
  downgrade, is INVALID_UPDATE_VERSION. A name that comes twice counts as it stood last.
- Version 0 says whether a level may be lowered; version 1 names the kind of change instead and can ask for validation
  only. Up to version 1 an answer without an error has a result for each feature; version 2 has none.
"""

from kwire.broker.features import FeatureUpdate, UpgradeType
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# There are some ten features.
FEATURE_UPDATES_MAX = 1_000


async def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if len(request.feature_updates) > FEATURE_UPDATES_MAX:
        reason = f"No feature was updated: at most {FEATURE_UPDATES_MAX} can be in one request."
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
