"""`ketch topics copy`: topics of any Kafka, with their records, configs and groups' positions, into any other one."""
