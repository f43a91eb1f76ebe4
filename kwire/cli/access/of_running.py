"""The users and ACLs of a running server, over its Kafka port."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from kwire.access.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.principal import parse_principal
from kwire.access.users.saslprep import prepare
from kwire.access.users.scram_credential import (
    BY_NUMBER,
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    ScramMechanism,
    salted_password,
)
from kwire.access.users.users import check_name
from kwire.cli.access.admin import AclsDisabled
from kwire.cli.config.resources import BROKER, TYPES
from kwire.cli.connection.error_texts import code_text
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.cli.connection.settings import ClientSettings
from kwire.config.settings.access import PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MIN_DEFAULT
from kwire.errors import ErrorCode
from kwire.kafka_client.login import Login
from kwire.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from kwire.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from kwire.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from kwire.wire.messages.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kwire.wire.messages.metadata import METADATA, MetadataRequest


class RunningServer:
    """The users and ACLs of one server."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect and log in. Raises Unreachable or LoginRefused."""
        self._settings = settings
        self._connection = KafkaConnection(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # Users

    def users(self) -> Mapping[str, Sequence[str]]:
        return {name: [one.mechanism for one in mechanisms] for name, mechanisms in sorted(self._described().items())}

    def password_length_min(self) -> int:
        """Return the setting of the server, or its default if the server does not show it or does not have it."""
        brokers = self._request(METADATA, MetadataRequest(topics=[])).brokers
        resources = [
            DescribeConfigsResource(
                resource_type=TYPES[BROKER], resource_name=str(broker.node_id), configuration_keys=[PASSWORD_LENGTH_MIN]
            )
            for broker in brokers[:1]
        ]
        results = self._request(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources)).results
        values = [one.value for result in results for one in result.configs if one.name == PASSWORD_LENGTH_MIN]
        return int(values[0]) if values else PASSWORD_LENGTH_MIN_DEFAULT

    def create_user(self, name: str, password: str) -> None:
        check_name(name)
        if self._described(name):
            raise ValueError(f"user {name} exists already: change its password with kwire user passwd")
        self._set_credentials(name, password)

    def set_password(self, name: str, password: str) -> None:
        if not self._described(name):
            raise ValueError(f"user {name} does not exist")
        self._set_credentials(name, password)

    def delete_user(self, name: str) -> None:
        mechanisms = self._described(name).get(name)
        if not mechanisms:
            raise ValueError(f"user {name} does not exist")
        if self._settings.login is not None and self._settings.login.user == name:
            raise ValueError(f"user {name} cannot delete itself: log in as another user")
        # Kafka's protocol allows one change of a user in a request.
        for mechanism in mechanisms:
            self._alter(deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism.number)])

    def _described(self, name: str | None = None) -> dict[str, list[ScramMechanism]]:
        """Return the mechanisms of one user or of all. A user that does not exist is not in the result."""
        request = DescribeUserScramCredentialsRequest(users=None if name is None else [UserName(name=name)])
        response = self._request(DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        self._check(response)
        found = {}
        for result in response.results:
            if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                self._check(result)
                numbers = sorted(one.mechanism for one in result.credential_infos)
                found[result.user] = [BY_NUMBER[number] for number in numbers]
        return found

    def _set_credentials(self, name: str, password: str) -> None:
        prepared = _prepared(password)
        login = self._settings.login
        own = login is not None and login.user == name
        # The mechanism of this connection comes first: a user who changes the own password has to log in again with the
        # new one, because the server closes the connections of a changed user.
        for mechanism in sorted(ScramMechanism, key=lambda one: one.mechanism != self._settings.mechanism):
            salt = secrets.token_bytes(SALT_BYTES)
            self._alter(
                upsertions=[
                    ScramCredentialUpsertion(
                        name=name,
                        mechanism=mechanism.number,
                        iterations=ITERATIONS_DEFAULT,
                        salt=salt,
                        salted_password=salted_password(mechanism, prepared, salt, ITERATIONS_DEFAULT),
                    )
                ]
            )
            if own:
                self._connection.close()
                self._settings = self._settings._replace(login=Login(name, password))
                self._connection = KafkaConnection(self._settings)

    def _alter(
        self,
        deletions: Sequence[ScramCredentialDeletion] = (),
        upsertions: Sequence[ScramCredentialUpsertion] = (),
    ) -> None:
        request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
        for result in self._request(ALTER_USER_SCRAM_CREDENTIALS, request).results:
            self._check(result)

    # ACLs

    def acls(self, wanted: AclFilter) -> Sequence[Acl]:
        response = self._request(DESCRIBE_ACLS, _filter_message(DescribeAclsRequest, wanted))
        self._check(response)
        return [
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
            for resource in response.resources
            for acl in resource.acls
        ]

    def add_acls(self, acls: Sequence[Acl]) -> None:
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=str(acl.principal),
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        for result in self._request(CREATE_ACLS, CreateAclsRequest(creations=creations)).results:
            self._check(result)

    def remove_acls(self, wanted: AclFilter) -> Sequence[Acl]:
        request = DeleteAclsRequest(filters=[_filter_message(DeleteAclsFilter, wanted)])
        (result,) = self._request(DELETE_ACLS, request).filter_results
        self._check(result)
        for one in result.matching_acls:
            self._check(one)
        return [_acl(one.resource_type, one.resource_name, one.pattern_type, one) for one in result.matching_acls]

    # Requests

    def _request(self, api: Any, message: Any) -> Any:
        return self._connection.request(api, message)

    def _check(self, result: Any) -> None:
        """Raise ValueError if a result has an error code."""
        code = result.error_code
        if not code:
            return
        if code == ErrorCode.SECURITY_DISABLED:
            raise AclsDisabled(f"{self._connection.address} has no ACLs: start the server with kwire.authorizer=acl")
        reason = code_text(code, result.error_message)
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            client = (
                f"user {self._settings.login.user}" if self._settings.login is not None else "a client without login"
            )
            reason = f"{client} may not do this; it needs rights on the cluster, which the role admin includes"
        raise ValueError(f"{self._connection.address}: {reason}")


def _prepared(password: str) -> bytes:
    try:
        prepared = prepare(password).encode()
    except ValueError as problem:
        raise ValueError(f"the password is not valid: {problem}") from None
    if not prepared:
        raise ValueError("the password must not be empty")
    return prepared


def _filter_message(message: Callable[..., Any], wanted: AclFilter) -> Any:
    return message(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _acl(resource_type: int, name: str, pattern_type: int, entry: Any) -> Acl:
    return Acl(
        ResourceType(resource_type),
        name,
        PatternType(pattern_type),
        parse_principal(entry.principal),
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )
