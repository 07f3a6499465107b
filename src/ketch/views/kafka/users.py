"""Users and their credentials, read and changed through any Kafka broker (KIP-554). It is sent no password."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ketch.security.scram import BY_NAME
from ketch.views.kafka.answers import TIMEOUT, ClientError, explain, result
from ketch.views.users import Found

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class BrokerUsers:
    """A `views.users.Users`. Raises ClientError where the broker refuses or does not answer."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def all(self) -> Found:
        asked: Any = self._admin.describe_user_scram_credentials(request_timeout=TIMEOUT)
        described: dict[str, Any] = result(asked, "Users cannot be listed")
        found: Found = {}
        for name, user in sorted(described.items()):
            infos = user.scram_credential_infos
            found[name] = {_sasl_name(info.mechanism.value): info.iterations for info in infos}
        return found

    def set(self, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # type: ignore[attr-defined]

        for each in mechanisms:  # a request may name a user once
            info = ScramCredentialInfo(ScramMechanism(BY_NAME[each].type), iterations)
            self._alter(name, UserScramCredentialUpsertion(name, info, password.encode()))

    def delete(self, name: str, mechanisms: Sequence[str]) -> None:
        from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion  # type: ignore[attr-defined]

        for each in mechanisms:
            self._alter(name, UserScramCredentialDeletion(name, ScramMechanism(BY_NAME[each].type)))

    def _alter(self, name: str, alteration: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            futures = self._admin.alter_user_scram_credentials([alteration], request_timeout=TIMEOUT)
        except KafkaException as error:
            raise ClientError(f"User {name} was not changed: {explain(error.args[0])}.") from None
        result(futures[name], f"User {name} was not changed")


def _sasl_name(type_: int) -> str:
    return next((name for name, mechanism in BY_NAME.items() if mechanism.type == type_), str(type_))
