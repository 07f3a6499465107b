"""What each client does over each mechanism, and the words in which it says that it was refused.

The words are the client's own: of its error, or of its log where it says no more than that there is no broker. They
were seen with the versions that docs/security-clients.md names. This module knows no broker and no process.
"""

from __future__ import annotations

from tests.support.sasl import OAUTHBEARER, PLAIN, SHA_256, SHA_512

MTLS = "mTLS"
MECHANISMS = (PLAIN, SHA_256, SHA_512, OAUTHBEARER, MTLS)
CLIENTS = ("java", "confluent-kafka", "kcat", "aiokafka", "kafka-python", "kafkajs", "franz-go", "sarama")

_OLD_NONCE = "kcat's librdkafka is older than 2.2: its nonce is wrong, which is refused since CVE-2024-56128"
LACKS = {
    ("kcat", SHA_256): _OLD_NONCE,
    ("kcat", SHA_512): _OLD_NONCE,
    ("kcat", OAUTHBEARER): "kcat has no option for a token",
}

# By what a client was refused for: regular expressions for the class of its error, a colon and the text.
DENIED = {
    "java": "TopicAuthorizationException: Not authorized to access topics",
    "confluent-kafka": "TOPIC_AUTHORIZATION_FAILED",
    "kcat": "Topic authorization failed",
    "aiokafka": "TopicAuthorizationFailedError",
    "kafka-python": "TopicAuthorizationFailedError",
    "kafkajs": "Not authorized to access topics|TOPIC_AUTHORIZATION_FAILED",
    "franz-go": "TOPIC_AUTHORIZATION_FAILED",
    "sarama": "The client is not authorized to access this topic",
}
READ_DENIED = {  # of the topic or of the group, whichever the client asks for first
    "java": "(Topic|Group)AuthorizationException",
    "confluent-kafka": "(TOPIC|GROUP)_AUTHORIZATION_FAILED",
    "aiokafka": "(Topic|Group)AuthorizationFailedError",
    "kafka-python": "(Topic|Group)AuthorizationFailedError",
    "kafkajs": "Not authorized to access|_AUTHORIZATION_FAILED",
    "franz-go": "(TOPIC|GROUP)_AUTHORIZATION_FAILED",
    "sarama": "not authorized to access this (topic|group)",
}
_INVALID = "invalid credentials with SASL mechanism SCRAM-SHA-512"
_ENDED = "socket disconnected"  # kafka-python, where the end of the connection comes together with the answer
PASSWORD = {
    "java": f"SaslAuthenticationException: .*{_INVALID}",
    "confluent-kafka": f"_AUTHENTICATION: .*{_INVALID}",
    "aiokafka": f"SaslAuthenticationFailed: .*{_INVALID}",
    "kafka-python": f"SaslAuthenticationFailedError: .*{_INVALID}|{_ENDED}",
    "kafkajs": f"KafkaJSSASLAuthenticationError: .*{_INVALID}",
    "franz-go": f"SASL_AUTHENTICATION_FAILED: .*{_INVALID}",
    "sarama": f"SASL Authentication failed: .*{_INVALID}",
}
_TOKEN = '{"status":"invalid_token"}'
TOKEN = {
    "java": f"SaslAuthenticationException: {_TOKEN}",
    "confluent-kafka": f"_AUTHENTICATION: .*{_TOKEN}",
    "aiokafka": "KafkaConnectionError: Unable to bootstrap",  # it takes the refusal for a success
    "kafka-python": f"SaslAuthenticationFailedError: {_TOKEN}|{_ENDED}",
    "kafkajs": "KafkaJSConnectionClosedError: Closed connection",  # as aiokafka
    "franz-go": "unexpected data in oauth response",
    "sarama": f"SASL Authentication failed: {_TOKEN}",
}
# The broker's alert, by TLS
OTHER_AUTHORITY = {
    "java": "SslAuthenticationException: .*unknown_ca",
    "confluent-kafka": "_TRANSPORT: .*alert unknown ca",
    "aiokafka": "KafkaConnectionError: .*closed",
    "kafka-python": f"TLSV1_ALERT_UNKNOWN_CA|{_ENDED}",
    "kafkajs": "KafkaJSConnectionError: .*alert unknown ca",
    "franz-go": "remote error: tls: unknown certificate authority",
    "sarama": "remote error: tls: unknown certificate authority",
}
EXPIRED = {
    "java": "SslAuthenticationException: .*certificate_expired",
    "confluent-kafka": "_TRANSPORT: .*alert certificate expired",
    "aiokafka": "KafkaConnectionError: .*closed",
    "kafka-python": f"SSLV3_ALERT_CERTIFICATE_EXPIRED|{_ENDED}",
    "kafkajs": "KafkaJSConnectionError: .*alert certificate expired",
    "franz-go": "remote error: tls: expired certificate",
    "sarama": "remote error: tls: expired certificate",
}
# The client's own judgement of the broker's certificate. aiokafka and KafkaJS hang up without an alert, so that the
# broker does not learn why.
WITHOUT_ALERT = {"aiokafka", "kafkajs"}
UNTRUSTED = {
    "java": "SslAuthenticationException: SSL handshake failed: PKIX path",
    "confluent-kafka": "_SSL: .*certificate verify failed",
    "aiokafka": "CERTIFICATE_VERIFY_FAILED",
    "kafka-python": "CERTIFICATE_VERIFY_FAILED",
    "kafkajs": "KafkaJSConnectionError: .*(self-signed certificate|unable to verify)",
    "franz-go": "failed to verify certificate: x509: certificate signed by unknown authority",
    "sarama": "failed to verify certificate: x509: certificate signed by unknown authority",
}
BROKER_EXPIRED = {
    "java": "SslAuthenticationException: SSL handshake failed: PKIX path",
    "confluent-kafka": "_SSL: .*certificate verify failed",
    "aiokafka": "certificate has expired",
    "kafka-python": "certificate has expired",
    "kafkajs": "KafkaJSConnectionError: .*certificate has expired",
    "franz-go": "certificate has expired or is not yet valid",
    "sarama": "certificate has expired or is not yet valid",
}
# What a client says whose user is gone when it has to log in again, with the producer that it has. Java's has no word
# for it but its log's.
USER_GONE = PASSWORD | {
    "java": "TimeoutException: Expiring 1 record",
    "kafkajs": f"KafkaJS(NonRetriable|SASLAuthentication)Error: .*{_INVALID}",
}
