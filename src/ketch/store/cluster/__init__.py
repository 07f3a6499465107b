"""What concerns Redis as a whole and the brokers on it: who is there, their configs and ids, is it fit."""
