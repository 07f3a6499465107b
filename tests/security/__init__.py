"""Rules of security, without a broker."""
